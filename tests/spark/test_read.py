"""`spark.read.format("barnabas")`: columns, bounds, splits, errors that say what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from barnabas.client.facade import Client
from waiting import eventually

pytestmark = pytest.mark.spark

Read = Callable[..., DataFrame]
Fill = Callable[[str, int, list[tuple[bytes | None, bytes | None]]], None]


def numbered(count: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(b"k%d" % i, b"v%d" % i) for i in range(count)]


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted(
        (row.partition, row.offset) for row in frame.select("partition", "offset").collect()
    )


def configs(client: Client, topic: str) -> set[tuple[str, str | None]]:
    return {(each.name, each.value) for each in client.describe_topic_configs([topic])[topic]}


def test_rows_have_the_columns_of_the_kafka_source(read: Read, fill: Fill, topic: str) -> None:
    fill(topic, 1, [(b"k", b"v"), (None, b""), (b"", None)])
    frame = read(subscribe=topic)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    rows = frame.orderBy("offset").collect()
    assert [(r.key, r.value) for r in rows] == [(b"k", b"v"), (None, b""), (b"", None)]
    assert {(r.topic, r.partition, r.timestampType) for r in rows} == {(topic, 1, 0)}
    at = [r.timestamp.astimezone(UTC) for r in rows]
    assert at[1] == datetime.fromtimestamp(1.001, UTC)


def test_headers_are_included_on_request(read: Read, client: Client, topic: str) -> None:
    with client.producer() as producer:
        producer.send(topic, b"v", partition=0, headers=[("a", b"1"), ("a", None)])
        producer.send(topic, b"w", partition=0)
    rows = read(subscribe=topic, includeHeaders="true").orderBy("offset").collect()
    assert [(h.key, h.value) for h in rows[0].headers] == [("a", b"1"), ("a", None)]
    assert rows[1].headers is None


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read(
    read: Read, client: Client, topic: str, compression: str
) -> None:
    with client.producer(**{"compression.type": compression}) as producer:
        producer.send_batch(topic, [(b"k", b"v" * 50, [], None)] * 1000, 0)
    assert read(subscribe=topic).filter("length(value) = 50").count() == 1000


def test_starting_and_ending_offsets_bound_the_read(read: Read, fill: Fill, topic: str) -> None:
    for partition in range(3):
        fill(topic, partition, numbered(10))
    frame = read(
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 7, "1": -2, "2": 9}}),
        endingOffsets=json.dumps({topic: {"0": -1, "1": 2, "2": 9}}),
    )
    assert offsets(frame) == [(0, 7), (0, 8), (0, 9), (1, 0), (1, 1)]


def test_timestamps_bound_the_read(read: Read, fill: Fill, topic: str) -> None:
    fill(topic, 0, numbered(10))
    fill(topic, 1, numbered(10))
    by_time = json.dumps({topic: {"0": 1004, "1": 1008, "2": 1000}})
    frame = read(
        subscribe=topic,
        startingOffsetsByTimestamp=by_time,
        startingOffsetsByTimestampStrategy="latest",
        endingTimestamp=1009,
    )
    assert offsets(frame) == [*((0, o) for o in range(4, 9)), (1, 8)]
    ends = json.dumps({topic: {"0": 1002, "1": 1000, "2": 1000}})
    assert offsets(read(subscribe=topic, endingOffsetsByTimestamp=ends)) == [(0, 0), (0, 1)]
    with pytest.raises(Exception, match="startingOffsetsByTimestampStrategy=latest"):
        read(subscribe=topic, startingTimestamp=5000).count()


def test_patterns_and_assignments_select_partitions(read: Read, fill: Fill, topic: str) -> None:
    for partition in range(3):
        fill(topic, partition, numbered(2))
    assert read(subscribePattern=f"{topic[:-1]}[{topic[-1]}]").count() == 6
    assert offsets(read(assign=json.dumps({topic: [2]}))) == [(2, 0), (2, 1)]


def test_ranges_are_split_for_more_tasks(read: Read, fill: Fill, topic: str) -> None:
    fill(topic, 0, numbered(1000))
    split = read(subscribe=topic, minPartitions=5)
    assert split.rdd.getNumPartitions() == 5
    assert offsets(split) == [(0, offset) for offset in range(1000)]
    assert read(subscribe=topic, maxRecordsPerPartition=300).rdd.getNumPartitions() == 4


def test_an_empty_topic_has_no_rows(read: Read, topic: str) -> None:
    assert read(subscribe=topic).count() == 0


def test_sql_reads_a_topic(spark: SparkSession, bootstrap: str, fill: Fill, topic: str) -> None:
    fill(topic, 0, numbered(4))
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW seen USING barnabas OPTIONS "
        f"('kafka.bootstrap.servers' '{bootstrap}', subscribe '{topic}')"
    )
    assert spark.sql("SELECT sum(offset) FROM seen").head()[0] == 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"endingOffsets": '{"TOPIC": {"0": 99, "1": -1, "2": -1}}'}, "which ends at 0"),
        ({"startingOffsets": '{"TOPIC": {"0": 0}}'}, "does not name TOPIC-1, TOPIC-2"),
        ({"startingOffsets": '{"TOPIC": {"0":0,"1":0,"2":0,"7":0}}'}, "names TOPIC-7"),
        ({"kafka.fetch.mni.bytes": "1"}, "fetch.min.bytes"),
    ],
)
def test_the_error_names_a_wrong_option(
    read: Read, topic: str, options: dict[str, str], words: str
) -> None:
    filled = {key: value.replace("TOPIC", topic) for key, value in options.items()}
    with pytest.raises(Exception, match=words.replace("TOPIC", topic)):
        read(subscribe=topic, **filled).count()


def test_the_error_names_an_unknown_topic(read: Read) -> None:
    with pytest.raises(Exception, match="no-such-topic-here"):
        read(subscribe="no-such-topic-here").count()


def test_lost_records_fail_the_query_or_are_omitted(
    read: Read, fill: Fill, client: Client, topic: str
) -> None:
    fill(topic, 0, numbered(6))
    client.alter_topic_configs(topic, {"retention.ms": "3600000"})
    eventually(lambda: client.list_offsets({(topic, 0): "earliest"})[topic, 0].offset == 6)
    client.alter_topic_configs(topic, {"retention.ms": "-1"})
    eventually(lambda: ("retention.ms", "-1") in configs(client, topic))
    fill(topic, 0, numbered(4))
    start = json.dumps({topic: {"0": 2, "1": 0, "2": 0}})
    with pytest.raises(Exception, match="failOnDataLoss=false"):
        read(subscribe=topic, startingOffsets=start).count()
    kept = read(subscribe=topic, startingOffsets=start, failOnDataLoss="false")
    assert offsets(kept) == [(0, offset) for offset in range(6, 10)]
