"""`valueFormat=protobuf`: the column `value` has the fields of the messages.

`tests/unit/serializers/test_protobuf_arrow.py` has the types and the damaged bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as ConfluentSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.longrunning.operations_proto_pb2 import Operation
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.protobuf.functions import from_protobuf

from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from barnabas.serializers import ProtobufSerializer, SchemaRegistry
from barnabas.serializers.proto_types import ProtoTypes
from barnabas.serializers.schema import Schema, SchemaType
from jvm.maven import class_path
from spark.queries import rows_of_stream
from unit.serializers.protobuf_messages import ALL, FULL

pytestmark = pytest.mark.spark

DEADLINE_S = 60
FLIGHT = """
syntax = "proto3";
package flights;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
message Unused { int32 a = 1; }
message Flight {
  string origin = 1;
  optional int32 delay = 2;
  google.protobuf.Timestamp departed = 3;
  google.protobuf.Duration taxi = 4;
  map<int32, Bag> bags = 5;
  Kind kind = 6;
  message Bag { repeated string tags = 1; }
  enum Kind { PASSENGER = 0; CARGO = 1; }
}
"""
FLIGHT_TYPE = (
    "struct<origin:string,delay:int,departed:timestamp,taxi:interval day to second,"
    "bags:map<int,struct<tags:array<string>>>,kind:string>"
)
VALUE = {
    "origin": "JFK",
    "delay": 0,
    "departed": "2026-01-31T12:00:00Z",
    "taxi": "90s",
    "bags": {"2": {"tags": ["red"]}},
}


def types_of(text: str) -> ProtoTypes:
    return ProtoTypes(Schema(text, SchemaType.PROTOBUF), {})


@pytest.fixture
def flights(client: Client, topic: str, registry_url: str) -> str:
    """A topic with a flight, a flight without fields, a tombstone and a damaged value."""
    writing = ProtobufSerializer(SchemaRegistry(registry_url), "Flight", FLIGHT)
    with client.producer() as producer:
        for value in (VALUE, {}):
            producer.send(topic, writing.serialize(topic, value), partition=0)
        producer.send(topic, None, b"gone", partition=0)
        producer.send(topic, b"plain text", partition=0)
    return topic


@pytest.mark.parametrize("defaults", ["false", "true"])
def test_a_read_has_the_fields_of_the_message(
    read: Callable[..., DataFrame], flights: str, registry_url: str, defaults: str
) -> None:
    frame = read(
        subscribe=flights,
        valueFormat="protobuf",
        registry=registry_url,
        valueMessage="Flight",
        valueErrors="null",
        **{"emit.default.values": defaults},
    )
    assert frame.schema["value"].dataType.simpleString() == FLIGHT_TYPE
    rows = frame.selectExpr(
        "offset", "value.origin", "value.delay", "unix_millis(value.departed) AS at",
        "value.taxi = INTERVAL 90 SECOND AS taxi", "value.bags", "value.kind",
    ).orderBy("offset").collect()  # fmt: skip
    origin, kind = ("", "PASSENGER") if defaults == "true" else (None, None)
    found = [tuple(row) for row in rows]
    first = found[0]
    assert first[:5] == (0, "JFK", 0, 1769860800000, True)
    assert {number: bag.tags for number, bag in first[5].items()} == {2: ["red"]}
    assert first[6] == kind
    assert found[1] == (1, origin, None, None, None, {}, kind)
    assert [row[1:] for row in found[2:]] == [(None,) * 6] * 2


def test_a_damaged_value_fails_a_read_or_is_a_dead_letter(
    read: Callable[..., DataFrame], client: Client, flights: str, registry_url: str
) -> None:
    options = {"subscribe": flights, "valueFormat": "protobuf", "registry": registry_url}
    options["valueMessage"] = "flights.Flight"
    with pytest.raises(PySparkException, match=f"{flights}-0, offset 3: .*not written by a serial"):
        read(**options).collect()
    dead = f"{flights}-dead"
    assert client.create_topics([NewTopic(dead, 1, 1)])[dead] is None
    rows = read(**options, deadLetterTopic=dead).collect()
    assert sorted(row.offset for row in rows) == [0, 1, 2]
    assert client.list_offsets({(dead, 0): "latest"})[dead, 0].offset == 1


def test_a_stream_reads_records_of_confluents_serializer(
    spark: SparkSession, bootstrap: str, client: Client, topic: str, registry_url: str
) -> None:
    # Its file imports another one, which is a reference in the registry.
    value = Operation(name="boarding", done=True)
    value.error.message = "late"
    theirs = SchemaRegistryClient({"url": registry_url, "timeout": DEADLINE_S})
    writing = ConfluentSerializer(Operation, theirs, {"use.deprecated.format": False})
    with client.producer() as producer:
        context = SerializationContext(topic, MessageField.VALUE)
        producer.send(topic, writing(value, context), partition=0)
    frame = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("valueFormat", "protobuf")
        .option("registry", registry_url)
        .load()
        .select("value.name", "value.done", "value.error.message", "value.metadata")
    )
    rows = rows_of_stream(frame, topic)
    assert [tuple(row) for row in rows] == [("boarding", True, "late", None)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('syntax = "proto3"; message M { M next = 1; }', "field next: the message M contains"),
        ('syntax = "proto3"; import "a.proto"; message M { A a = 1; }', "imports a.proto"),
    ],
)
def test_a_schema_without_columns_is_refused(
    read: Callable[..., DataFrame], topic: str, text: str, message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        read(
            subscribe=topic,
            valueFormat="protobuf",
            registry="http://127.0.0.1:1",
            valueSchema=text,
        )


@pytest.fixture(scope="module")
def protobuf_spark(spark: SparkSession) -> SparkSession:
    """A session with the jar of `from_protobuf`."""
    try:
        jars = class_path("spark-protobuf")
    except AssertionError as error:
        if not re.search(r"Could not find artifact|was not found in", str(error)):
            raise
        pytest.skip("Maven's repository does not have the jar of Spark's from_protobuf")
    session = spark.newSession()
    for jar in jars.split(os.pathsep):
        session.sql(f"ADD JAR '{jar}'")
    return session


def descriptors(message: type[Message]) -> bytes:
    """The file of a message behind the files that it imports, as `protoc` writes them."""
    files: dict[str, FileDescriptorProto] = {}

    def add(file: Any) -> None:
        for each in file.dependencies:
            add(each)
        files[file.name] = FileDescriptorProto.FromString(file.serialized_pb)

    add(message.DESCRIPTOR.file)
    return FileDescriptorSet(file=files.values()).SerializeToString()


# Some repositories of Maven lack the jar, and `make check` may skip no test.
@pytest.mark.nightly
def test_the_columns_are_those_of_sparks_from_protobuf(
    protobuf_spark: SparkSession,
    bootstrap: str,
    client: Client,
    topic: str,
    registry_url: str,
) -> None:
    types = types_of(ALL)
    message = types.message_class()
    writing = ProtobufSerializer(SchemaRegistry(registry_url), schema=ALL)
    with client.producer() as producer:
        for value in (FULL, {}):
            given = ParseDict(value, message(), descriptor_pool=types.pool)
            data = writing.serialize(topic, value)
            producer.send(topic, data, given.SerializeToString(), partition=0)
    frame = (
        protobuf_spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("valueFormat", "protobuf")
        .option("registry", registry_url)
        .load()
    )
    theirs = from_protobuf(col("key"), "All", binaryDescriptorSet=descriptors(message))
    both = frame.select("value", theirs.alias("theirs"))
    ours, other = (both.schema[name].dataType.simpleString() for name in both.columns)
    assert ours == other
    rows = both.collect()
    assert len(rows) == 2
    assert [row.value for row in rows] == [row.theirs for row in rows]
