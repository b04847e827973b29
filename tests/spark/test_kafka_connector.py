"""Spark's own Kafka connector, unchanged, against Barnabas: it reads and writes the same rows as
`format("barnabas")`.

The jars come through Maven (`examples/spark-kafka`). With KAFKA_BOOTSTRAP set the same tests run
against that cluster.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from barnabas.client.topic_partition import TopicPartition
from selection import nightly_unless
from spark.queries import Stream, caught_up, save, to_the_end
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("connector")]

SOURCES = ("kafka", "barnabas")
Fill = Callable[[str, int, list[tuple[bytes | None, bytes | None]]], None]
# As `Read` of the other tests, with the source's name first.
ReadBy = Callable[..., DataFrame]
RECORDS = 40


@pytest.fixture
def read_by(spark: SparkSession, bootstrap: str) -> ReadBy:
    def load(source: str, **options: object) -> DataFrame:
        reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**options).load()

    return load


@pytest.fixture
def stream(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Stream:
    return Stream(spark, bootstrap, tmp_path, "kafka")


@pytest.fixture(scope="module")
def filled(client: Client) -> str:
    """A topic of three partitions: nulls, headers, a compression each; and one beside it."""
    name = f"connector-{os.getpid()}"
    kept = {"retention.ms": "-1"}
    made = client.create_topics([NewTopic(name, 3, 1, kept), NewTopic(f"{name}-b", 1, 1, kept)])
    assert set(made.values()) == {None}
    for partition, codec in enumerate(("none", "lz4", "zstd")):
        with client.producer(**{"compression.type": codec, "batch.size": "300"}) as producer:
            producer.send_batch(name, list(rows_of(partition)), partition)
    with client.producer() as producer:
        producer.send_batch(f"{name}-b", list(rows_of(9)), 0)
    return name


def rows_of(
    partition: int,
) -> Iterator[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]]:
    """Records of every shape, a millisecond apart."""
    for i in range(RECORDS):
        key = None if i % 3 == 0 else b"k%d" % i
        value = None if i % 7 == 0 else b"%d-%d" % (partition, i)
        headers: list[tuple[str, bytes | None]] = [("h", b"%d" % i), ("h", None)][: i % 4]
        yield key, value, headers, 1000 + i


def sorted_rows(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def numbered(count: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(None, b"%d" % i) for i in range(count)]


# Options of a read, and the number of rows.
READS: dict[str, tuple[dict[str, str], int]] = {
    "subscribe": ({"subscribe": "TOPIC,TOPIC-b", "includeHeaders": "true"}, 4 * RECORDS),
    "pattern": ({"subscribePattern": "TOP[I]C"}, 4 * RECORDS),
    "java's pattern": ({"subscribePattern": r"^(?<n>[a-z&&[^b]]+)-\p{Digit}++\z"}, 3 * RECORDS),
    "assign none": ({"assign": '{"TOPIC":[]}'}, 0),
    "of streams": (
        {"subscribe": "TOPIC", "maxOffsetsPerTrigger": "5", "maxTriggerDelay": "1s"},
        120,
    ),
    "assign": ({"assign": '{"TOPIC":[0,2]}', "includeHeaders": "true"}, 2 * RECORDS),
    "offsets": (
        {
            "subscribe": "TOPIC",
            "minPartitions": "5",
            "startingOffsets": '{"TOPIC":{"0":5,"1":-2,"2":39}}',
            "endingOffsets": '{"TOPIC":{"0":-1,"1":3,"2":39}}',
        },
        38,
    ),
    "times": (
        {
            "subscribe": "TOPIC",
            "startingOffsetsByTimestamp": '{"TOPIC":{"0":1010,"1":1039,"2":9999}}',
            "startingOffsetsByTimestampStrategy": "latest",
            "endingOffsetsByTimestamp": '{"TOPIC":{"0":1012,"1":9999,"2":9999}}',
        },
        3,
    ),
    "one time": (
        {"subscribe": "TOPIC", "startingTimestamp": "1030", "endingTimestamp": "1035"},
        15,
    ),
}
# Those of `make check`.
CHOSEN = {"java's pattern", "offsets", "times"}


@pytest.mark.parametrize("name", nightly_unless(CHOSEN.__contains__, READS))
def test_both_connectors_read_the_same_rows(read_by: ReadBy, filled: str, name: str) -> None:
    options, count = READS[name]
    options = {key: value.replace("TOP[I]C", filled) for key, value in options.items()}
    options = {key: value.replace("TOPIC", filled) for key, value in options.items()}
    kafka, ours = (read_by(source, **options) for source in SOURCES)
    assert kafka.schema == ours.schema
    assert (found := sorted_rows(kafka)) == sorted_rows(ours)
    assert len(found) == count


def test_a_time_beyond_microseconds_is_an_error_that_names_the_record(
    read_by: ReadBy, client: Client, topic: str
) -> None:
    name = f"{topic}-far"
    far = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
    assert client.create_topics([NewTopic(name, 1, 1, far)])[name] is None
    with client.producer() as producer:
        producer.send_batch(name, [(None, b"near", [], 1000), (None, b"far", [], 10**16)], 0)
    for source in SOURCES:
        with pytest.raises(Exception, match=r"10{16}\b") as caught:
            read_by(source, subscribe=name).collect()
        assert all(word in str(caught.value) for word in (name, "offset 1 "))


def test_an_internal_topic_is_read_by_its_name_in_one_connector(
    read_by: ReadBy, client: Client, topic: str
) -> None:
    """The page of options names this difference."""
    client.commit_offsets(f"group-{topic}", {TopicPartition(topic, 0): 1})
    rows = [read_by(s, subscribe="__consumer_offsets").count() for s in SOURCES]
    assert rows[0] == 0
    assert rows[1] > 0


@pytest.mark.parametrize("delay", nightly_unless("100us".__eq__, ["15min", "100us"]))
def test_the_first_trigger_does_not_wait_for_the_minimum(
    stream: Stream, fill: Fill, topic: str, tmp_path: Path, delay: str
) -> None:
    fill(topic, 0, numbered(10))
    for source in SOURCES:
        stream.source = source
        frame = stream.frame(topic, minOffsetsPerTrigger=1000, maxTriggerDelay=delay)
        location = str(tmp_path / source)
        writer = frame.writeStream.format("noop").option("checkpointLocation", location)
        query = caught_up(writer.start)
        query.stop()
        assert sum(p["numInputRows"] for p in query.recentProgress) == 10


def test_a_minimum_ends_a_query_early_in_one_connector(
    stream: Stream, fill: Fill, topic: str, tmp_path: Path
) -> None:
    """The page of options names this difference."""
    fill(topic, 0, numbered(10))
    rows = []
    for source in SOURCES:
        stream.source = source
        frame = stream.frame(topic, minOffsetsPerTrigger=6, maxOffsetsPerTrigger=6)
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        query = to_the_end(writer.option("checkpointLocation", str(tmp_path / source)).start)
        rows.append(sum(p["numInputRows"] for p in query.recentProgress))
    assert rows == [6, 10]


@pytest.mark.parametrize("source", SOURCES)
def test_a_partitioner_of_kafka_spreads_rows_of_one_key(
    spark: SparkSession, read_by: ReadBy, bootstrap: str, topic: str, source: str
) -> None:
    rows = spark.range(30).selectExpr("'k' key", "cast(id as string) value").coalesce(1)
    name = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    save(rows, bootstrap, source, topic=topic, **{"kafka.partitioner.class": name})
    written = read_by("barnabas", subscribe=topic).select("partition").collect()
    assert len(written) == 30
    assert len({row.partition for row in written}) > 1


def test_both_connectors_split_ranges_for_more_tasks(read_by: ReadBy, filled: str) -> None:
    tasks = [read_by(s, subscribe=filled, minPartitions=6).rdd.getNumPartitions() for s in SOURCES]
    assert tasks == [6, 6]


def test_deleted_records_fail_or_are_omitted_in_both_connectors(
    read_by: ReadBy, stream: Stream, client: Client, fill: Fill, topic: str
) -> None:
    fill(topic, 0, numbered(10))
    stream.run(topic)
    fill(topic, 0, numbered(10))
    client.admin.delete_records({TopicPartition(topic, 0): 15})
    start = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 5, "1": 0, "2": 0}})}
    for source in SOURCES:
        with pytest.raises(Exception, match="failOnDataLoss"):
            read_by(source, **start).collect()
    kept = [sorted_rows(read_by(s, failOnDataLoss="false", **start)) for s in SOURCES]
    assert kept[0] == kept[1]
    assert [row.offset for row in kept[0]] == [15, 16, 17, 18, 19]
    with pytest.raises(Exception, match="failOnDataLoss"):
        stream.run(topic)
    stream.run(topic, failOnDataLoss="false")
    assert stream.offsets() == [(0, offset) for offset in (*range(10), *range(15, 20))]


def test_available_now_continues_from_the_checkpoint_in_limited_batches(
    stream: Stream, fill: Fill, topic: str
) -> None:
    fill(topic, 0, numbered(60))
    query = stream.run(topic, maxOffsetsPerTrigger=20)
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [20] * 3
    fill(topic, 1, numbered(10))
    query = stream.run(topic, maxOffsetsPerTrigger=20)
    assert sum(p["numInputRows"] for p in query.recentProgress) == 10
    assert stream.offsets() == [*((0, o) for o in range(60)), *((1, o) for o in range(10))]


def test_a_checkpoint_works_with_both_connectors_in_turn(
    stream: Stream, fill: Fill, topic: str
) -> None:
    for run, source in enumerate(("barnabas", "kafka", "barnabas")):
        fill(topic, 0, numbered(5))
        fill(topic, 2, numbered(2))
        stream.source = source
        query = stream.run(topic)
        ends = json.loads(query.lastProgress["sources"][0]["endOffset"])
        assert ends == {topic: {"0": 5 * run + 5, "1": 0, "2": 2 * run + 2}}
    assert stream.offsets() == [*((0, o) for o in range(15)), *((2, o) for o in range(6))]


@pytest.fixture
def running(stream: Stream, topic: str, tmp_path: Path) -> Iterator[StreamingQuery]:
    """A query that goes on, batch by batch, over the topic, into memory."""
    query = (
        stream.frame(topic)
        .writeStream.format("memory")
        .queryName(topic.replace("-", "_"))
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    yield query
    query.stop()


def test_partitions_that_are_added_while_it_runs_are_read_from_their_start(
    spark: SparkSession, read_by: ReadBy, client: Client, fill: Fill, topic: str,
    running: StreamingQuery,
) -> None:  # fmt: skip
    fill(topic, 0, numbered(3))
    running.processAllAvailable()
    client.create_partitions({topic: 4})
    eventually(lambda: len(client.partitions_for([topic])[topic]) == 4)
    fill(topic, 3, numbered(4))
    eventually(lambda: spark.table(running.name).count() == 7)
    assert sorted_rows(spark.table(running.name)) == sorted_rows(
        read_by("barnabas", subscribe=topic)
    )


def test_both_sinks_write_the_same_records(
    spark: SparkSession, read_by: ReadBy, client: Client, bootstrap: str, topic: str
) -> None:
    """The same rows by both: topic, partition and headers as columns."""
    made: dict[str, list[tuple[object, ...]]] = {}
    for sink, number in zip(SOURCES, itertools.count()):
        names = [f"{topic}-{number}-{letter}" for letter in "ab"]
        client.create_topics([NewTopic(name, 2, 1) for name in names])
        rows = spark.range(30).selectExpr(
            "if(id % 3 = 0, null, cast(id as string)) key",
            "if(id % 7 = 0, null, encode(concat('v', id), 'utf-8')) value",
            f"concat('{topic}-{number}-', if(id % 2 = 0, 'a', 'b')) topic",
            "cast(id % 2 as int) partition",
            "if(id % 5 = 0, null, "
            "array(struct('h' as key, encode(concat('n', id), 'utf-8') as value))) headers",
        )
        save(rows, bootstrap, sink)
        written = read_by("barnabas", subscribe=",".join(names), includeHeaders="true").collect()
        made[sink] = sorted(
            (r.topic[-1], r.partition, str(r.key), str(r.value), str(r.headers)) for r in written
        )
    assert made["kafka"] == made["barnabas"]
    assert len(made["kafka"]) == 30


def test_the_kafka_sink_writes_a_stream(
    stream: Stream, bootstrap: str, filled: str, topic: str, tmp_path: Path, read_by: ReadBy
) -> None:  # fmt: skip
    writer = (
        stream.frame(filled, includeHeaders="true")
        .select("key", "value", "headers", "partition")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
    )
    to_the_end(writer.start)
    columns = ("partition", "offset", "key", "value", "headers")
    source, sink = (
        sorted_rows(read_by("kafka", subscribe=name, includeHeaders="true"))
        for name in (filled, topic)
    )
    kept = [[tuple(row[c] for c in columns) for row in rows] for rows in (source, sink)]
    assert len(kept[0]) == 3 * RECORDS
    assert kept[0] == kept[1]
