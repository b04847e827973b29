"""Registry clients and serializers of others, against the registry of Barnabas.

`tests/jvm/test_schema_registry.py` has the serializers of Barnabas beside those of confluent-kafka.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.schema_registry_client import ConfigCompatibilityLevel
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import SerializationContext
from google.longrunning.operations_proto_pb2 import Operation

from barnabas import serializers
from barnabas.testing.registry_process import RegistryProcess
from conformance.client_packages import HERE as PACKAGES, node_package
from waiting import PATIENCE_S

pytestmark = pytest.mark.conformance

_numbers = itertools.count(1)
_PROGRAMS = Path(__file__).parent / "programs"
# Go compiles its library the first time.
_COMPILE_S = 300
DRAFT = "http://json-schema.org/draft-07/schema#"
AIRPORT_AVRO = {
    "type": "record",
    "name": "Airport",
    "namespace": "air",
    "fields": [{"name": "code", "type": "string"}],
}
FLIGHT_AVRO = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "fields": [{"name": "to", "type": "air.Airport"}],
}
AIRPORT_JSON = {
    "$schema": DRAFT,
    "$id": "airport.json",
    "title": "Airport",
    "type": "object",
    "properties": {"code": {"type": "string"}},
    "required": ["code"],
}
FLIGHT_JSON = {
    "$schema": DRAFT,
    "title": "Flight",
    "type": "object",
    "properties": {"to": {"$ref": "airport.json"}},
}
FLIGHT = {"to": {"code": "JFK"}}


@pytest.fixture
def topic() -> str:
    return f"clients-{next(_numbers)}"


@pytest.fixture
def client(schema_registry: RegistryProcess) -> SchemaRegistryClient:
    return SchemaRegistryClient(schema_registry.confluent)


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, "value")


def registered_reference(
    client: SchemaRegistryClient, topic: str, kind: str, name: str, schema: Any
) -> SchemaReference:
    """Register a schema in a subject of its own, and return the reference to it."""
    subject = f"{topic}-airport"
    client.register_schema(subject, Schema(json.dumps(schema), kind))
    return SchemaReference(name, subject, 1)


def test_avro_with_a_reference(client: SchemaRegistryClient, topic: str) -> None:
    reference = registered_reference(client, topic, "AVRO", "air.Airport", AIRPORT_AVRO)
    schema = Schema(json.dumps(FLIGHT_AVRO), "AVRO", [reference])
    data = AvroSerializer(client, schema)(FLIGHT, value_of(topic))
    assert AvroDeserializer(client)(data, value_of(topic)) == FLIGHT
    registry = serializers.SchemaRegistry(client.config()["url"])
    assert serializers.AvroDeserializer(registry)(data) == FLIGHT


def test_json_schema_with_a_reference(client: SchemaRegistryClient, topic: str) -> None:
    reference = registered_reference(client, topic, "JSON", "airport.json", AIRPORT_JSON)
    schema = Schema(json.dumps(FLIGHT_JSON), "JSON", [reference])
    data = JSONSerializer(schema, client)(FLIGHT, value_of(topic))
    read = JSONDeserializer(None, schema_registry_client=client)
    assert read(data, value_of(topic)) == FLIGHT
    with pytest.raises(Exception, match="code"):
        JSONSerializer(schema, client)({"to": {}}, value_of(topic))


def test_protobuf_with_imports(client: SchemaRegistryClient, topic: str) -> None:
    modern = {"use.deprecated.format": False}
    value = Operation(name="boarding", done=True)
    data = ProtobufSerializer(Operation, client, modern)(value, value_of(topic))
    # The deserializer asks the registry for descriptors, and not for the texts.
    read = ProtobufDeserializer(Operation, modern, client)
    assert read(data, value_of(topic)) == value
    found = client.get_latest_version(f"{topic}-value").schema
    assert "google/rpc/status.proto" in [each.name for each in found.references or []]


@pytest.mark.parametrize("strategy", ["use.latest.version", "normalize.schemas"])
def test_settings_of_the_serializer(
    client: SchemaRegistryClient, topic: str, strategy: str
) -> None:
    first = client.register_schema(f"{topic}-value", Schema(json.dumps(AIRPORT_AVRO), "AVRO"))
    # The same schema with its members in another order.
    turned = json.dumps(dict(reversed(AIRPORT_AVRO.items())))
    settings = {strategy: True}
    if strategy == "use.latest.version":
        settings["auto.register.schemas"] = False
    data = AvroSerializer(client, turned, conf=settings)({"code": "JFK"}, value_of(topic))
    assert int.from_bytes(data[1:5], "big") == first
    assert client.get_versions(f"{topic}-value") == [1]


def test_a_missing_schema_is_refused_without_automatic_registration(
    client: SchemaRegistryClient, topic: str
) -> None:
    settings = {"auto.register.schemas": False}
    serializer = AvroSerializer(client, json.dumps(AIRPORT_AVRO), conf=settings)
    with pytest.raises(SchemaRegistryError) as raised:
        serializer({"code": "JFK"}, value_of(topic))
    assert (raised.value.http_status_code, raised.value.error_code) == (404, 40401)


def test_metadata_of_schemas(client: SchemaRegistryClient, topic: str) -> None:
    def metadata(**properties: str) -> Metadata:
        return Metadata(None, MetadataProperties(properties), [])

    subject = f"{topic}-value"
    config = ServerConfig(compatibility_group="major", default_metadata=metadata(team="air"))
    client.set_config(subject, config)
    found = client.get_config(subject)
    assert (found.compatibility_group, found.default_metadata) == ("major", metadata(team="air"))
    for number, text in (("1", '"string"'), ("2", '"int"')):
        client.register_schema(subject, Schema(text, "AVRO", [], metadata(major=number)))
    latest = client.get_latest_with_metadata(subject, {"major": "1"})
    assert (latest.version, latest.schema.schema_str) == (1, '"string"')
    assert latest.schema.metadata == metadata(major="1", team="air")
    # The serializer selects the version by its metadata, too.
    settings = {"auto.register.schemas": False, "use.latest.with.metadata": {"major": "1"}}
    data = AvroSerializer(client, None, conf=settings)("JFK", value_of(topic))
    assert int.from_bytes(data[1:5], "big") == latest.schema_id


def test_calls_of_confluents_client(client: SchemaRegistryClient, topic: str) -> None:
    subject = f"{topic}-value"
    gate = {**AIRPORT_AVRO, "name": "Gate"}
    schema = Schema(json.dumps(gate), "AVRO")
    number = client.register_schema(subject, schema)
    assert client.get_schema(number).schema_str == json.dumps(gate, separators=(",", ":"))
    assert client.lookup_schema(subject, schema).version == 1
    assert client.get_version(subject, 1).schema_id == number
    assert subject in client.get_subjects()
    assert [each.subject for each in client.get_schema_versions(number)] == [subject]
    assert set(client.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    assert "." in client.get_contexts()
    assert client.set_compatibility(subject, "FULL") == {"compatibility": "FULL"}
    assert client.get_compatibility(subject) == "FULL"
    client.set_config(subject, ServerConfig(ConfigCompatibilityLevel.BACKWARD))
    assert client.get_config(subject).compatibility_level == "BACKWARD"
    fields = [*gate["fields"], {"name": "city", "type": "string"}]
    newer = Schema(json.dumps({**gate, "fields": fields}), "AVRO")
    assert not client.test_compatibility(subject, newer)
    assert client.test_compatibility_all_versions(subject, schema)
    with pytest.raises(SchemaRegistryError) as raised:
        client.register_schema(subject, newer)
    assert raised.value.http_status_code == 409
    assert client.update_mode(subject, "READONLY") == "READONLY"
    assert client.get_mode(subject) == "READONLY"
    assert client.delete_mode(subject) == "READONLY"
    assert client.get_global_mode() == "READWRITE"
    assert client.delete_version(subject, 1) == 1
    assert client.delete_subject(subject, permanent=True) == [1]


class JavaScriptClient:
    """Encodes and decodes values with the registry client of kafkajs, in one process of Node."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._modules = node_package("schema-registry-js") / "node_modules"

    def run(self, *actions: dict[str, Any]) -> list[Any]:
        """Return the result of each action."""
        done = subprocess.run(
            ["node", str(_PROGRAMS / "registry_program.js"), self._url],
            input=json.dumps(actions),
            env={**os.environ, "NODE_PATH": str(self._modules)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))


PROTO = 'syntax = "proto3"; package air; message Landing { string airport = 1; int32 minutes = 2; }'


def encoded_by_javascript(
    program: JavaScriptClient, kind: str, text: str, subject: str, value: Any
) -> str:
    """Register a schema and encode a value; return the bytes in hexadecimal digits."""
    [_, written] = program.run(
        {"do": "register", "type": kind, "schema": text, "subject": subject},
        {"do": "encode", "subject": subject, "value": value},
    )
    return str(written)


@pytest.mark.parametrize(
    ("kind", "schema", "writes", "reads"),
    [
        ("AVRO", AIRPORT_AVRO, serializers.AvroSerializer, serializers.AvroDeserializer),
        (
            "JSON",
            AIRPORT_JSON,
            serializers.JsonSchemaSerializer,
            serializers.JsonSchemaDeserializer,
        ),
    ],
    ids=["avro", "json"],
)
def test_javascript_and_barnabas_read_each_others_records(
    schema_registry: RegistryProcess, topic: str, kind: str, schema: Any, writes: Any, reads: Any
) -> None:
    program = JavaScriptClient(schema_registry.url)
    registry = serializers.SchemaRegistry(**schema_registry.barnabas)
    text, value = json.dumps(schema), {"code": "JFK"}
    written = encoded_by_javascript(program, kind, text, f"{topic}-value", value)
    assert reads(registry)(bytes.fromhex(written)) == value
    ours = writes(registry, text).serialize(topic, value)
    # The JSON texts may have different white space, but both name the same schema.
    assert ours.hex()[:10] == written[:10]
    assert program.run({"do": "decode", "data": ours.hex()}) == [value]


def test_javascript_reads_its_own_protobuf(schema_registry: RegistryProcess, topic: str) -> None:
    # This client does not write the indexes of the message, so that no other client reads it.
    program = JavaScriptClient(schema_registry.url)
    value = {"airport": "JFK", "minutes": 42}
    written = encoded_by_javascript(program, "PROTOBUF", PROTO, f"{topic}-value", value)
    assert program.run({"do": "decode", "data": written}) == [value]


def test_javascript_resolves_references(
    client: SchemaRegistryClient, schema_registry: RegistryProcess, topic: str
) -> None:
    reference = registered_reference(client, topic, "AVRO", "air.Airport", AIRPORT_AVRO)
    schema = Schema(json.dumps(FLIGHT_AVRO), "AVRO", [reference])
    data = AvroSerializer(client, schema)(FLIGHT, value_of(topic))
    program = JavaScriptClient(schema_registry.url)
    assert program.run({"do": "decode", "data": data.hex()}) == [FLIGHT]


def test_the_calls_of_franz_gos_client(
    schema_registry: RegistryProcess, topic: str, tmp_path: Path
) -> None:
    if shutil.which("go") is None:
        pytest.skip("go not found: franz-go needs Go 1.24 or later")
    for name in ("go.mod", "go.sum"):
        shutil.copy(PACKAGES / "franz-go-sr" / name, tmp_path)
    shutil.copy(_PROGRAMS / "registry_program.go", tmp_path)
    done = subprocess.run(
        ["go", "run", ".", schema_registry.url, f"{topic}-value"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=_COMPILE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "schema": '{"type":"record","name":"GoPlain","fields":[{"name":"a","type":"string"}]}',
        "version": 1,
        "compatible": False,
        "conflict": 409,
        "level": "FULL",
        "mode": 40409,
        "missing": 40402,
        "deleted": [1],
        "purged": [1],
    }
