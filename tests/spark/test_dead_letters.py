"""Values that cannot be decoded: `valueErrors`, `deadLetterTopic`, and the columns of JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from barnabas.cli.admin.topics import topics
from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.spark.errors import DeadLetterError, ValueDecodeError
from barnabas.spark.topics.json_inference import infer_topic
from barnabas.spark.topics.offsets import OffsetRange
from barnabas.spark.topics.options import parse_source_options
from barnabas.spark.topics.task import read_range
from spark.queries import Stream

pytestmark = pytest.mark.spark

SCHEMA = "origin STRING, delay BIGINT"
GOOD = b'{"origin": "JFK", "delay": 42}'
TEXT = b"plain text"
LATE = b'{"origin": "LGA", "delay": "late"}'


@pytest.fixture
def flights(client: Client, topic: str) -> str:
    """A topic with two good values, two that cannot be decoded, and a tombstone."""
    with client.producer() as producer:
        producer.send(topic, GOOD, b"good", partition=1)
        producer.send(
            topic, TEXT, b"text", partition=1, headers=[("a", b"x"), ("a", None)], timestamp_ms=5
        )
        producer.send(topic, LATE, None, partition=1)
        producer.send(topic, None, b"gone", partition=1)
        producer.send(topic, GOOD, b"good", partition=1)
    return topic


@pytest.fixture
def dead(client: Client, topic: str) -> str:
    """An empty topic for dead letters."""
    name = f"{topic}-dead"
    assert client.create_topics([NewTopic(name, 1, 1, {"retention.ms": "-1"})])[name] is None
    return name


def letters(client: Client, topic: str) -> list[ConsumerRecord]:
    end = client.list_offsets({(topic, 0): "latest"})[topic, 0].offset
    with client.stream({(topic, 0): (0, end)}) as stream:
        return list(stream.records())


def run_task(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> None:
    """Read partition 1 as a task does."""
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
    frame = spark.read.format("barnabas").options(**given).load()
    parsed = parse_source_options(given, streaming=False)
    list(read_range(parsed, OffsetRange(topic, 1, 0, 5), frame.schema))


def test_a_dead_letter_has_the_record_and_the_headers_of_kafka_connect(
    spark: SparkSession, bootstrap: str, client: Client, flights: str, dead: str
) -> None:
    options = {"valueFormat": "json", "valueSchema": SCHEMA, "deadLetterTopic": dead}
    run_task(spark, bootstrap, flights, groupIdPrefix="late", **options)
    text, late = letters(client, dead)
    assert (text.key, text.value, text.timestamp) == (b"text", TEXT, 5)
    assert (late.key, late.value) == (None, LATE)
    assert text.headers[:2] == [("a", b"x"), ("a", None)]
    prefix = "__connect.errors."
    found = {name.removeprefix(prefix): value for name, value in text.headers[2:]}
    message = found.pop("exception.message")
    assert message is not None
    assert b"not JSON" in message
    assert found == {
        "topic": flights.encode(),
        "partition": b"1",
        "offset": b"1",
        "connector.name": f"late-{flights}".encode(),
        "stage": b"VALUE_CONVERTER",
        "class.name": b"barnabas.spark:json",
        "exception.class.name": b"WireFormatError",
    }
    assert all(name.startswith(prefix) for name, _ in text.headers[2:])
    assert b"`$.delay`" in dict(late.headers)[f"{prefix}exception.message"]
    # A task that runs again sends its letters again.
    run_task(spark, bootstrap, flights, **options)
    assert len(letters(client, dead)) == 4


def test_a_task_fails_if_its_dead_letter_is_refused(
    spark: SparkSession, bootstrap: str, client: Client, flights: str, topic: str
) -> None:
    narrow = f"{topic}-narrow"
    [error] = client.create_topics([NewTopic(narrow, 1, 1, {"max.message.bytes": "100"})]).values()
    assert error is None
    options = {"valueFormat": "json", "valueSchema": SCHEMA, "deadLetterTopic": narrow}
    for _ in range(2):
        with pytest.raises(DeadLetterError, match=r"max.message.bytes"):
            run_task(spark, bootstrap, flights, **options)


def test_an_error_names_the_record(spark: SparkSession, bootstrap: str, flights: str) -> None:
    with pytest.raises(ValueDecodeError, match=rf"{flights}-1, offset 1: .* set deadLetterTopic"):
        run_task(spark, bootstrap, flights, valueFormat="json", valueSchema=SCHEMA)


def test_rows_are_dropped_or_null_in_a_read(
    read: Callable[..., DataFrame], client: Client, flights: str, dead: str
) -> None:
    options = {"subscribe": flights, "valueFormat": "json", "valueSchema": SCHEMA}
    options |= {"includeHeaders": "true"}
    rows = read(valueErrors="drop", **options).collect()
    assert [(row.offset, row.key, row.value and row.value.delay) for row in rows] == [
        (0, b"good", 42),
        (3, b"gone", None),
        (4, b"good", 42),
    ]
    # A sort in Spark would read the topic twice, and send each letter twice.
    rows = read(valueErrors="null", deadLetterTopic=dead, **options).collect()
    assert [row.value and row.value.origin for row in rows] == ["JFK", None, None, None, "JFK"]
    assert [row.headers and len(row.headers) for row in rows] == [None, 2, None, None, None]
    assert [letter.value for letter in letters(client, dead)] == [TEXT, LATE]


def test_a_stream_goes_on_with_its_good_rows(
    spark: SparkSession, bootstrap: str, client: Client, flights: str, dead: str, tmp_path: Path
) -> None:
    stream = Stream(spark, bootstrap, tmp_path)
    options = {"valueFormat": "json", "valueSchema": SCHEMA, "deadLetterTopic": dead}
    stream.run(flights, **options)
    stream.run(flights, **options)
    assert stream.offsets() == [(1, 0), (1, 3), (1, 4)]
    assert len(letters(client, dead)) == 2


@pytest.mark.parametrize(
    ("selection", "letters_to", "words"),
    [
        ({"subscribe": "{topic}"}, "{topic}-missing", "does not exist: create it"),
        ({"subscribePattern": "{topic}.*"}, "{topic}-dead", "subscribePattern does not match"),
    ],
)
def test_a_wrong_topic_for_dead_letters_fails_before_a_record_is_read(
    read: Callable[..., DataFrame],
    flights: str,
    dead: str,
    selection: dict[str, str],
    letters_to: str,
    words: str,
) -> None:
    chosen = {name: value.format(topic=flights) for name, value in selection.items()}
    options = {"valueFormat": "json", "valueSchema": SCHEMA, **chosen}
    with pytest.raises(PySparkException, match=words):
        read(deadLetterTopic=letters_to.format(topic=flights), **options).collect()


# Values of a topic whose columns Spark infers, too.
SAMPLES = [
    '{"n": 1, "real": 1.5, "long": 12345678901234567890, "longer": 1, "only_here": -1}',
    '{"n": 2.5, "real": 12345678901234567890, "long": 1, "longer": 123456789012345678901}',
    '{"mixed": 1, "object": {"c": 1}, "flag": true, "null": null, "empty": [], "no_field": {}}',
    '{"mixed": "x", "object": [1], "flag": 0, "objects": [{}], "deep_null": [[]]}',
    '{"z": {"y": [{"b": 1}, {"a": "x"}]}, "a b": 1, "c.d": {"e`f": ""}, "select": 1, "\u00e9": 1}',
    '{"z": {"x": [[1.5], null]}, "at": "2026-01-31T12:00:00Z", "day": "2026-01-31"}',
]


def test_inferred_columns_are_those_that_spark_infers(
    spark: SparkSession, read: Callable[..., DataFrame], client: Client, topic: str
) -> None:
    with client.producer() as producer:
        for text in SAMPLES:
            producer.send(topic, text.encode())
    theirs = spark.read.json(spark.sparkContext.parallelize(SAMPLES, 1))
    frame = read(subscribe=topic, valueFormat="json", valueSchema="infer")
    assert frame.schema["value"].dataType == theirs.schema
    # Both read the same values with the columns.
    given = infer_topic(client, topic, 100).ddl()
    ours = read(subscribe=topic, valueFormat="json", valueSchema=given).select("value.*")
    assert sorted(map(str, ours.collect())) == sorted(map(str, theirs.collect()))


def test_the_command_prints_the_columns_and_what_was_widened(
    bootstrap: str, client: Client, flights: str
) -> None:
    done = CliRunner().invoke(topics, ["schema", flights, "-b", bootstrap])
    assert done.exit_code == 0, done.output
    assert done.stdout == "delay STRING, origin STRING\n"
    assert "delay is STRING, because its values are BIGINT and STRING" in done.stderr
    assert "1 of 4 sampled values are not JSON objects" in done.stderr
    done = CliRunner().invoke(topics, ["schema", flights, "-b", bootstrap, "--sample=1", "--json"])
    assert '"ddl": "delay BIGINT, origin STRING"' in done.stdout
