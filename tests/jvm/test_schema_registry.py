"""Serializers of Barnabas and Confluent with a schema registry and a Barnabas broker."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer, Producer as ConfluentProducer
from confluent_kafka.schema_registry import (
    Schema as ConfluentSchema,
    SchemaRegistryClient,
)
from confluent_kafka.schema_registry.avro import (
    AvroDeserializer as ConfluentAvroDeserializer,
    AvroSerializer as ConfluentAvroSerializer,
)
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import (
    ProtobufDeserializer as ConfluentProtobufDeserializer,
    ProtobufSerializer as ConfluentProtobufSerializer,
)
from confluent_kafka.serialization import SerializationContext
from google.longrunning.operations_proto_pb2 import Operation
from google.type.money_pb2 import Money

from barnabas import (
    Admin,
    ConfigResource,
    Consumer,
    Producer,
    RecordDeserializationError,
    ResourceType,
    aio,
    serializers,
)
from barnabas.console.settings import ConsoleSettings
from barnabas.serializers import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryError,
    Schema,
    SchemaMismatchError,
    SchemaReference,
    SchemaRegistry,
    SchemaType,
)
from barnabas.testing.broker_process import BrokerProcess
from console_in_process import ConsoleInProcess
from flight_schema import FLIGHT, FLIGHT_AVRO

_numbers = itertools.count(1)
DEADLINE_S = 60.0
# Then Confluent's client repeats a request that the registry does not answer.
ANSWER_S = 30

PLANE_JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Plane",
    "type": "object",
    "properties": {"tail": {"type": "string"}, "seats": {"type": "integer"}},
    "required": ["tail"],
}
PLANE = {"tail": "N14228", "seats": 149}
MONEY = Money(currency_code="USD", units=120, nanos=500_000_000)
OPERATION = Operation(name="boarding", done=True)
DELAY_PROTO = """
syntax = "proto3";
package flights;
message Unused {}
message Delay { message Cause { string code = 1; } Cause cause = 1; int32 minutes = 2; }
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # Members of share groups get their assignments early.
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.share.heartbeat.interval.ms": "100",
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.assignment.interval.ms": "0",
        "group.share.min.assignment.interval.ms": "0",
    }
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), settings)
    try:
        yield process.start().bootstrap
    finally:
        process.kill()


@pytest.fixture
def topic() -> str:
    return f"flights-{next(_numbers)}"


@pytest.fixture(scope="module")
def registry(registry_url: str) -> SchemaRegistry:
    return SchemaRegistry(registry_url)


def confluent_client(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url, "timeout": ANSWER_S})


class Pair:
    """Serializers of Barnabas and Confluent for one format, and a value."""

    def __init__(self, name: str, url: str) -> None:
        ours, theirs = SchemaRegistry(url), confluent_client(url)
        avro, plane = json.dumps(FLIGHT_AVRO), json.dumps(PLANE_JSON)
        self.value: Any
        self.our_serializer: Any
        self.our_deserializer: Callable[[bytes | None], Any]
        self.their_serializer: Any
        self.their_deserializer: Any
        if name == "avro":
            self.value = FLIGHT
            self.our_serializer = AvroSerializer(ours, FLIGHT_AVRO)
            self.our_deserializer = AvroDeserializer(ours)
            self.their_serializer = ConfluentAvroSerializer(theirs, avro)
            self.their_deserializer = ConfluentAvroDeserializer(theirs)
        elif name == "json-schema":
            self.value = PLANE
            self.our_serializer = JsonSchemaSerializer(ours, PLANE_JSON)
            self.our_deserializer = JsonSchemaDeserializer(ours)
            self.their_serializer = JSONSerializer(plane, theirs)
            self.their_deserializer = JSONDeserializer(plane, schema_registry_client=theirs)
        else:
            self.value = MONEY if name == "protobuf" else OPERATION
            kind = type(self.value)
            # The default of Confluent's serializer differs from serializers in other languages.
            modern = {"use.deprecated.format": False}
            self.our_serializer = ProtobufSerializer(ours, kind)
            self.our_deserializer = ProtobufDeserializer(ours, kind)
            self.their_serializer = ConfluentProtobufSerializer(kind, theirs, modern)
            # Without the registry: Apicurio fails on this client's requests for descriptors, even
            # for those that Confluent's serializer has registered.
            self.their_deserializer = ConfluentProtobufDeserializer(kind, modern)


@pytest.fixture(params=["avro", "json-schema", "protobuf", "protobuf with imports"])
def pair(request: pytest.FixtureRequest, registry_url: str) -> Pair:
    return Pair(request.param, registry_url)


def read_all(broker: str, topic: str, count: int, **config: Any) -> list[Any]:
    """Return the values of a topic, read by the Barnabas consumer."""
    found: list[Any] = []
    options = {"auto_offset_reset": "earliest", "group_id": f"{topic}-readers", **config}
    with Consumer(topic, bootstrap_servers=broker, **options) as consumer:
        while len(found) < count:
            records = consumer.poll(DEADLINE_S)
            assert records, f"{len(found)} of {count} records"
            found += [record.value for record in records]
    return found


def test_confluent_reads_records_of_barnabas(broker: str, topic: str, pair: Pair) -> None:
    with Producer(broker, value_serializer=pair.our_serializer) as producer:
        producer.send(topic, pair.value)
        producer.send(topic, None, key=b"removed")
    config = {"bootstrap.servers": broker, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = ConfluentConsumer(config)
    consumer.subscribe([topic])
    try:
        messages = consumer.consume(2, DEADLINE_S)
    finally:
        consumer.close()
    context = SerializationContext(topic, "value")
    values = [pair.their_deserializer(message.value(), context) for message in messages]
    assert values == [pair.value, None]


def test_barnabas_reads_records_of_confluent(broker: str, topic: str, pair: Pair) -> None:
    producer = ConfluentProducer({"bootstrap.servers": broker})
    producer.produce(topic, pair.their_serializer(pair.value, SerializationContext(topic, "value")))
    producer.produce(topic, None, b"removed")
    producer.flush(DEADLINE_S)
    values = read_all(broker, topic, 2, value_deserializer=pair.our_deserializer)
    assert values == [pair.value, None]


def test_both_register_one_schema_and_write_the_same_bytes(topic: str, pair: Pair) -> None:
    theirs = pair.their_serializer(pair.value, SerializationContext(topic, "value"))
    ours = pair.our_serializer.serialize(topic, pair.value)
    assert ours is not None
    if isinstance(pair.value, dict) and pair.value is PLANE:
        # The JSON texts have different white space.
        assert (ours[:5], json.loads(ours[5:])) == (theirs[:5], json.loads(theirs[5:]))
    else:
        assert ours == theirs


class CountingInterceptor:
    """An interceptor that stores the values of all records."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def on_send(self, record: Any) -> Any:
        self.values.append(record.value)
        return record

    def on_acknowledgement(self, metadata: object, error: object) -> None:
        pass

    def close(self) -> None:
        pass


def test_asyncio_clients_use_the_same_serializers(
    broker: str, topic: str, registry: SchemaRegistry
) -> None:
    async def write_and_read() -> list[Any]:
        serializer = AvroSerializer(registry, FLIGHT_AVRO)
        async with aio.Producer(
            broker, value_serializer=serializer, interceptors=[interceptor]
        ) as producer:
            await producer.send(topic, FLIGHT)
            await producer.send_batch(topic, [(None, FLIGHT, (), None), (None, None, (), None)])
        found: list[Any] = []
        async with aio.Consumer(
            topic,
            bootstrap_servers=broker,
            group_id=topic,
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer(SchemaRegistry(registry.url)),
        ) as consumer:
            while len(found) < 3:
                records = await consumer.poll(DEADLINE_S)
                assert records
                found += [record.value for record in records]
        return found

    interceptor = CountingInterceptor()
    assert asyncio.run(write_and_read()) == [FLIGHT, FLIGHT, None]
    # A schema lookup repeats only the serializer, not the interceptor.
    assert interceptor.values == [FLIGHT, FLIGHT, None]


def test_an_asyncio_share_consumer_looks_schemas_up(
    broker: str, topic: str, registry: SchemaRegistry
) -> None:
    group = f"{topic}-share"

    async def write_and_read() -> list[Any]:
        async with aio.ShareConsumer(
            topic,
            bootstrap_servers=broker,
            group_id=group,
            value_deserializer=AvroDeserializer(SchemaRegistry(registry.url)),
        ) as consumer:
            return [record.value for record in await consumer.poll(DEADLINE_S)]

    with Producer(broker, value_serializer=AvroSerializer(registry, FLIGHT_AVRO)) as producer:
        producer.send(topic, FLIGHT)
    with Admin(broker) as admin:
        earliest = {"share.auto.offset.reset": "earliest"}
        admin.alter_configs(ConfigResource(ResourceType.GROUP, group), earliest)
    assert asyncio.run(write_and_read()) == [FLIGHT]


def test_older_records_are_read_by_a_newer_schema(
    broker: str, topic: str, registry: SchemaRegistry
) -> None:
    newer = {
        **FLIGHT_AVRO,
        "fields": [
            {"name": "from", "type": "string", "aliases": ["origin"]},
            {"name": "carrier", "type": "string", "default": "unknown"},
        ],
    }
    with Producer(broker, value_serializer=AvroSerializer(registry, FLIGHT_AVRO)) as producer:
        producer.send(topic, FLIGHT)
    values = read_all(
        broker, topic, 1, value_deserializer=AvroDeserializer(registry, reader_schema=newer)
    )
    assert values == [{"from": "JFK", "carrier": "unknown"}]


def test_a_reader_schema_that_does_not_fit_names_the_field(
    broker: str, topic: str, registry: SchemaRegistry
) -> None:
    with Producer(broker, value_serializer=AvroSerializer(registry, FLIGHT_AVRO)) as producer:
        producer.send(topic, FLIGHT)
    reader = {
        **FLIGHT_AVRO,
        "fields": [{"name": "stops", "type": {"type": "array", "items": "int"}}],
    }
    with pytest.raises(RecordDeserializationError, match=r"field stops\[\]: string") as raised:
        read_all(broker, topic, 1, value_deserializer=AvroDeserializer(registry, reader))
    cause = raised.value.__cause__
    assert isinstance(cause, SchemaMismatchError)
    assert cause.field == "stops[]"


def test_an_incompatible_version_is_refused_with_its_field(
    topic: str, registry: SchemaRegistry, registry_url: str
) -> None:
    confluent_client(registry_url).set_compatibility(level="BACKWARD")
    AvroSerializer(registry, FLIGHT_AVRO).serialize(topic, FLIGHT)
    fields: list[Any] = [*FLIGHT_AVRO["fields"], {"name": "gate", "type": "string"}]
    newer = AvroSerializer(registry, {**FLIGHT_AVRO, "fields": fields})
    with pytest.raises(
        RegistryError, match="field gate: the writer's schema has no such field"
    ) as e:
        newer.serialize(topic, {**FLIGHT, "gate": "B22"})
    assert e.value.status == 409


def test_an_incompatible_message_is_refused_with_its_field(
    topic: str, registry: SchemaRegistry, registry_url: str
) -> None:
    ProtobufSerializer(registry, schema=DELAY_PROTO).serialize(topic, {})
    theirs = confluent_client(registry_url)
    theirs.set_compatibility(f"{topic}-value", "FULL")
    newer = DELAY_PROTO.replace("int32 minutes", "string minutes")
    wanted = r"status 409.* field flights\.Delay\.minutes: number 2 was int32 and is now string"
    with pytest.raises(RegistryError, match=wanted):
        ProtobufSerializer(registry, schema=newer).serialize(topic, {})


def test_a_serializer_without_auto_register_uses_registered_schemas(
    topic: str, registry: SchemaRegistry
) -> None:
    no_registration = AvroSerializer(registry, FLIGHT_AVRO, auto_register=False)
    with pytest.raises(RegistryError) as raised:
        no_registration.serialize(topic, FLIGHT)
    assert raised.value.status == 404
    first = AvroSerializer(registry, FLIGHT_AVRO).serialize(topic, FLIGHT)
    assert no_registration.serialize(topic, FLIGHT) == first
    assert AvroSerializer(registry).serialize(topic, FLIGHT) == first


def test_a_subject_name_strategy_decides_where_a_schema_is_registered(
    topic: str, registry: SchemaRegistry
) -> None:
    for strategy in (serializers.record_name, serializers.topic_record_name):
        by_record = AvroSerializer(registry, FLIGHT_AVRO, subject_name=strategy)
        by_record.serialize(topic, FLIGHT)
        JsonSchemaSerializer(registry, PLANE_JSON, subject_name=strategy).serialize(topic, PLANE)
    AvroSerializer(registry, '"string"').serialize(topic, "JFK", "key")
    names = {"flights.Flight", f"{topic}-flights.Flight", "Plane", f"{topic}-Plane", f"{topic}-key"}
    assert names <= set(registry.subjects())


DRAFT = "http://json-schema.org/draft-07/schema#"
# The referenced schema, the schema with the reference, the name of the reference, a value.
REFERENCES = {
    SchemaType.AVRO: (
        {"type": "record", "name": "a.Airport", "fields": [{"name": "c", "type": "string"}]},
        {
            "type": "record",
            "name": "a.Flight",
            "fields": [
                {"name": "to", "type": "Airport"},
                {"name": "via", "type": ["null", "a.Airport"]},
            ],
        },
        "a.Airport",
        {"to": {"c": "JFK"}, "via": {"c": "ORD"}},
    ),
    SchemaType.JSON: (
        {"$schema": DRAFT, "type": "object", "properties": {"c": {"type": "string"}}},
        {"$schema": DRAFT, "type": "object", "properties": {"to": {"$ref": "airport.json"}}},
        "airport.json",
        {"to": {"c": "JFK"}},
    ),
    SchemaType.PROTOBUF: (
        'syntax = "proto3"; package a; message Airport { string c = 1; }',
        'syntax = "proto3"; package a; import "airport.proto"; message F { Airport to = 1; }',
        "airport.proto",
        {"to": {"c": "JFK"}},
    ),
}


@pytest.mark.parametrize("kind", list(SchemaType))
def test_schemas_may_refer_to_schemas_of_other_subjects(
    topic: str, registry: SchemaRegistry, kind: SchemaType
) -> None:
    airport, flight, name, value = REFERENCES[kind]
    texts = [each if isinstance(each, str) else json.dumps(each) for each in (airport, flight)]
    subject = f"{topic}-airport"
    registry.register(subject, Schema(texts[0], kind))
    schema = Schema(texts[1], kind, (SchemaReference(name, subject, 1),))
    made: Any
    if kind is SchemaType.AVRO:
        made, read = AvroSerializer(registry, schema), AvroDeserializer(registry)
    elif kind is SchemaType.JSON:
        made, read = JsonSchemaSerializer(registry, schema), JsonSchemaDeserializer(registry)
    else:
        made, read = ProtobufSerializer(registry, schema=schema), ProtobufDeserializer(registry)
    found = read(made.serialize(topic, value))
    if kind is SchemaType.PROTOBUF:
        assert found.to.c == "JFK"
    else:
        assert found == value


def test_a_nested_message_is_found_by_the_text_in_the_registry(
    topic: str, registry: SchemaRegistry
) -> None:
    serializer = ProtobufSerializer(registry, "Delay.Cause", schema=DELAY_PROTO)
    data = serializer.serialize(topic, {"code": "fog"})
    assert data is not None
    assert data[5:8] == b"\x04\x02\x00"
    message = ProtobufDeserializer(registry)(data)
    assert message.DESCRIPTOR.full_name == "flights.Delay.Cause"
    assert message.code == "fog"
    with pytest.raises(SchemaMismatchError, match=r"is a flights.Delay.Cause, not a google"):
        ProtobufDeserializer(registry, Money)(data)


def test_confluents_client_reads_schemas_of_barnabas(
    topic: str, registry: SchemaRegistry, registry_url: str
) -> None:
    AvroSerializer(registry, FLIGHT_AVRO).serialize(topic, FLIGHT)
    latest = confluent_client(registry_url).get_latest_version(f"{topic}-value")
    assert isinstance(latest.schema, ConfluentSchema)
    assert json.loads(str(latest.schema.schema_str)) == FLIGHT_AVRO


def test_the_console_shows_values_by_their_schemas(
    broker: str, topic: str, registry: SchemaRegistry
) -> None:
    with Producer(broker, value_serializer=AvroSerializer(registry, FLIGHT_AVRO)) as producer:
        producer.send(topic, FLIGHT)
    settings = ConsoleSettings(broker, {}, interval=3600.0, timeout=DEADLINE_S, registry=registry)
    with ConsoleInProcess(settings) as console:
        listed = console.get("/messages", topic=topic, **{"from": "beginning"})
        full = console.get("/message", topic=topic, partition="0", offset="0")
    for page in (listed, full):
        assert "&#34;fare&#34;: &#34;120.50&#34;" in page.text
        assert re.search(r">schema \d+<", page.text)
