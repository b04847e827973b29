"""`spark.readStream.format("barnabas")`: limits, restarts, progress in a group."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from spark.queries import Stream, caught_up, to_the_end, with_python
from waiting import eventually

pytestmark = pytest.mark.spark

# A limit for what hangs.
TIMEOUT_S = 240

Fill = Callable[[str, int, list[tuple[bytes | None, bytes | None]]], None]


def numbered(count: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(None, b"%d" % i) for i in range(count)]


@pytest.fixture
def stream(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Stream:
    return Stream(spark, bootstrap, tmp_path)


def test_available_now_reads_all_in_limited_batches(stream: Stream, fill: Fill, topic: str) -> None:
    fill(topic, 0, numbered(100))
    fill(topic, 1, numbered(50))
    query = stream.run(topic, maxOffsetsPerTrigger=60)
    sizes = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
    assert sizes == [60, 60, 30]
    assert stream.offsets() == [*((0, o) for o in range(100)), *((1, o) for o in range(50))]


def test_a_restart_continues_at_the_checkpoint(stream: Stream, fill: Fill, topic: str) -> None:
    fill(topic, 0, numbered(10))
    stream.run(topic)
    fill(topic, 0, numbered(5))
    query = stream.run(topic)
    end = json.loads(query.lastProgress["sources"][0]["endOffset"])
    assert end == {topic: {"0": 15, "1": 0, "2": 0}}
    assert stream.offsets() == [(0, offset) for offset in range(15)]


def test_partitions_that_were_added_are_read_from_their_start(
    stream: Stream, fill: Fill, client: Client, topic: str
) -> None:
    fill(topic, 0, numbered(3))
    stream.run(topic)
    client.create_partitions({topic: 4})
    eventually(lambda: len(client.partitions_for([topic])[topic]) == 4)
    fill(topic, 3, numbered(4))
    stream.run(topic, maxOffsetsPerTrigger=100)
    assert stream.offsets() == [*((0, o) for o in range(3)), *((3, o) for o in range(4))]


def test_progress_is_shown_in_a_group(
    stream: Stream, fill: Fill, client: Client, topic: str
) -> None:
    group = f"{topic}-group"

    def is_shown() -> bool:
        fill(topic, 0, numbered(40))
        stream.run(topic, maxOffsetsPerTrigger=10, **{"kafka.group.id": group})
        found = client.committed(group).get((topic, 0))
        (end,) = client.list_offsets({(topic, 0): "latest"}).values()
        return found is not None and found.offset == end.offset

    # A query leaves the group alone when its coordinator does not answer soon.
    eventually(is_shown)


def test_a_deleted_topic_does_not_end_a_query_that_allows_data_loss(
    spark: SparkSession, bootstrap: str, fill: Fill, client: Client, topic: str, tmp_path: Path
) -> None:
    gone = f"{topic}-gone"
    client.create_topic(gone, 1, 1, {"retention.ms": "-1"})
    fill(gone, 0, numbered(5))
    fill(topic, 0, numbered(5))
    writer = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", f"{topic},{gone}")
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "false")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
    )
    query = caught_up(writer.start)
    try:
        client.delete_topics([gone])
        eventually(lambda: gone not in client.topics())
        fill(topic, 0, numbered(7))
        query.processAllAvailable()
        assert sum(p["numInputRows"] for p in query.recentProgress) == 17
        end = json.loads(query.recentProgress[-1]["sources"][0]["endOffset"])
        assert end == {topic: {"0": 12, "1": 0, "2": 0}}
    finally:
        query.stop()


def test_a_wrong_option_of_a_stream_is_the_error_that_the_user_sees(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    source = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
    with pytest.raises(AnalysisException, match="OptionError: startingOffsets='bogus'"):
        source.option("subscribe", topic).option("startingOffsets", "bogus").load()
    frame = source.option("startingOffsets", "earliest").option("endingOffsets", "latest").load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(StreamingQueryException) as failure:
        with_python(lambda: query.start().awaitTermination(TIMEOUT_S))
    assert "OptionError: endingOffsets is for spark.read" in str(failure.value)
    assert "UnboundLocalError" not in str(failure.value)


def test_a_query_starts_at_the_end_by_default(stream: Stream, fill: Fill, topic: str) -> None:
    fill(topic, 0, numbered(10))
    query = stream.run(topic, startingOffsets="latest")
    assert sum(p["numInputRows"] for p in query.recentProgress) == 0


def test_progress_names_the_latest_offset(
    stream: Stream, fill: Fill, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    fill(topic, 0, numbered(10))
    writer = (
        stream.frame(topic, maxOffsetsPerTrigger=4)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
    )
    query = caught_up(writer.start)
    try:
        source = query.recentProgress[0]["sources"][0]
    finally:
        query.stop()
    assert json.loads(source["latestOffset"])[topic]["0"] == 10
    assert json.loads(source["endOffset"])[topic]["0"] == 4


def test_too_few_records_wait_for_more(
    stream: Stream, fill: Fill, topic: str, tmp_path: Path
) -> None:
    fill(topic, 0, numbered(10))
    writer = (
        stream.frame(topic, minOffsetsPerTrigger=15, maxTriggerDelay="1h")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
    )
    query = caught_up(writer.start)
    try:
        assert sum(p["numInputRows"] for p in query.recentProgress) == 10, "the first trigger"
        fill(topic, 1, numbered(10))
        query.processAllAvailable()
        assert sum(p["numInputRows"] for p in query.recentProgress) == 10
        fill(topic, 2, numbered(5))
        query.processAllAvailable()
        assert sum(p["numInputRows"] for p in query.recentProgress) == 25
    finally:
        query.stop()


def test_a_shorter_topic_fails_the_query(
    stream: Stream, fill: Fill, client: Client, topic: str
) -> None:
    fill(topic, 0, numbered(10))
    stream.run(topic)
    assert client.delete_topics([topic])[topic] is None
    eventually(
        lambda: client.create_topics([NewTopic(topic, 3, 1)], raise_errors=False)[topic] is None
    )
    fill(topic, 0, numbered(3))
    query = stream.frame(topic)
    with pytest.raises(Exception, match="read up to 10 already"):
        stream.run(topic, maxOffsetsPerTrigger=5)
    assert query.isStreaming


def test_a_recreated_topic_fails_a_query_until_someone_decides(
    stream: Stream, fill: Fill, client: Client, topic: str, tmp_path: Path
) -> None:
    fill(topic, 0, numbered(5))
    created_again = NewTopic(topic, 3, 1, {"retention.ms": "-1"})
    writer = (
        stream.frame(topic)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(processingTime="5 seconds")
    )
    query = caught_up(writer.start)
    try:
        assert client.delete_topics([topic])[topic] is None
        eventually(lambda: client.create_topics([created_again], raise_errors=False)[topic] is None)
        fill(topic, 0, numbered(9))
        with pytest.raises(StreamingQueryException, match="created again, after the query"):
            query.awaitTermination(TIMEOUT_S)
    finally:
        query.stop()
    with pytest.raises(StreamingQueryException, match="created again, after the query"):
        to_the_end(writer.trigger(availableNow=True).start)
    decided = stream.frame(topic, failOnDataLoss="false").writeStream.format("noop")
    decided = decided.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    query = to_the_end(decided.start)
    assert sum(p["numInputRows"] for p in query.recentProgress) == 9, "the whole new topic"
