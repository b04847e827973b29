"""`valueFormat=avro`: the column `value` has the fields of the records, in reads and streams.

One test runs the block of docs/schemas.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import flight_schema
from barnabas.client.facade import Client
from barnabas.serializers import AvroSerializer, SchemaRegistry
from documents.blocks import sections_of
from spark.queries import rows_of_stream

pytestmark = pytest.mark.spark

BAGS = {"name": "bags", "type": {"type": "map", "values": "int"}}
SCHEMA: dict[str, Any] = {**flight_schema.FLIGHT_AVRO}
SCHEMA["fields"] = [*SCHEMA["fields"], BAGS]
FLIGHT = {**flight_schema.FLIGHT, "stops": ["ORD"], "bags": {"red": 2}}
TYPE = (
    "struct<origin:string,delay:int,departed:timestamp,fare:decimal(9,2),stops:array<string>,"
    "bags:map<string,int>>"
)


@pytest.fixture
def flights(client: Client, topic: str, registry_url: str) -> str:
    """A topic with two flights of two versions of the schema, and a tombstone."""
    registry = SchemaRegistry(registry_url)
    older = {**SCHEMA, "fields": [each for each in SCHEMA["fields"] if each["name"] != "delay"]}
    without_delay = {name: value for name, value in FLIGHT.items() if name != "delay"}
    with client.producer() as producer:
        data = AvroSerializer(registry, older).serialize(topic, without_delay)
        producer.send(topic, data, b"old", partition=0)
        data = AvroSerializer(registry, SCHEMA).serialize(topic, FLIGHT)
        producer.send(topic, data, b"new", partition=0)
        producer.send(topic, None, b"gone", partition=0)
    return topic


def test_a_read_has_the_fields_of_the_latest_schema(
    read: Callable[..., DataFrame], flights: str, registry_url: str
) -> None:
    frame = read(subscribe=flights, valueFormat="avro", registry=registry_url)
    assert frame.schema["value"].dataType.simpleString() == TYPE
    rows = frame.orderBy("offset").collect()
    assert [row.key for row in rows] == [b"old", b"new", b"gone"]
    assert rows[2].value is None
    found = [row.value.asDict() for row in rows[:2]]
    for each in found:
        each["departed"] = each["departed"].astimezone(UTC)
    assert found == [{**FLIGHT, "delay": None}, FLIGHT]


def test_the_program_of_the_document_shows_the_fields(
    spark: SparkSession,
    bootstrap: str,
    flights: str,
    registry_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    [block] = [
        block
        for section in sections_of("docs/schemas.md")
        for block in section.blocks
        if block.checked_by == "tests/spark/test_value_format.py"
    ]
    text = block.text.replace("127.0.0.1:9092", bootstrap)
    text = text.replace("http://127.0.0.1:8081", registry_url)
    exec(text.replace('"avro-flights"', repr(flights)), {"spark": spark})
    shown = capsys.readouterr().out
    assert "|origin|delay|" in shown
    assert "|   JFK|   42|" in shown


def test_a_stream_has_the_same_fields(
    spark: SparkSession, bootstrap: str, flights: str, registry_url: str
) -> None:
    frame = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", flights)
        .option("startingOffsets", "earliest")
        .option("valueFormat", "avro")
        .option("registry", registry_url)
        .load()
        .select("value.origin", "value.delay")
    )
    rows = rows_of_stream(frame, flights)
    assert sorted(map(str, rows)) == sorted(
        [
            "Row(origin='JFK', delay=None)",
            "Row(origin='JFK', delay=42)",
            "Row(origin=None, delay=None)",
        ]
    )


def test_a_damaged_value_fails_the_read_or_is_null(
    read: Callable[..., DataFrame], client: Client, flights: str, registry_url: str
) -> None:
    with client.producer() as producer:
        producer.send(flights, b"plain text", b"damaged", partition=0)
    schema = json.dumps({**SCHEMA, "fields": SCHEMA["fields"][:1]})
    options = {"valueFormat": "avro", "registry": registry_url, "valueSchema": schema}
    rows = read(subscribe=flights, valueErrors="null", **options).orderBy("offset").collect()
    assert [row.value and row.value.origin for row in rows] == ["JFK", "JFK", None, None]
    with pytest.raises(PySparkException, match="not written by a serializer"):
        read(subscribe=flights, **options).collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valueFormat": "avro"}, "valueFormat=avro needs registry"),
        ({"valueFormat": "xml"}, "expected 'binary', 'avro', 'json'"),
        ({"registry": "http://127.0.0.1:1"}, "registry has no meaning without valueFormat"),
        ({"valueFormat": "avro", "registry": "{url}"}, "Register a schema for this subject first"),
    ],
)
def test_wrong_options_say_what_to_do(
    read: Callable[..., DataFrame],
    topic: str,
    registry_url: str,
    options: dict[str, str],
    message: str,
) -> None:
    given = {name: value.format(url=registry_url) for name, value in options.items()}
    with pytest.raises(PySparkException, match=message):
        read(subscribe=topic, **given)
