"""The stream reader's decisions, over a planner that answers from a dictionary."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from barnabas.client.topic_partition import TopicPartition
from barnabas.spark.errors import DataLossError
from barnabas.spark.offsets import Offsets
from barnabas.spark.options import parse_source_options
from barnabas.spark.stream_reader import TopicStreamReader

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class FixedPlanner:
    """A cluster whose ends the test moves."""

    def __init__(self, ends: Offsets) -> None:
        self.ends = ends
        self.starts: Offsets = {}
        self.made_anew: list[str] = []

    def partitions(self) -> list[TopicPartition]:
        return sorted(self.ends)

    def recreated(self) -> list[str]:
        return self.made_anew

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {tp: self.ends[tp] for tp in partitions}

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {tp: self.starts.get(tp, 0) for tp in partitions}

    def starting(self, partitions: list[TopicPartition]) -> Offsets:
        return self.earliest(partitions)


class HandClock:
    """A clock that the test turns."""

    now = 0.0

    def wall_ms(self) -> int:
        return int(self.now)

    def monotonic_ms(self) -> float:
        return self.now


def reader(ends: Offsets, **options: str) -> tuple[TopicStreamReader, FixedPlanner, HandClock]:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"} | options
    clock, planner = HandClock(), FixedPlanner(ends)
    made = TopicStreamReader(parse_source_options(given, streaming=True), StructType(), clock)
    made._planner = planner  # type: ignore[assignment]
    return made, planner, clock


def test_without_a_limit_a_trigger_takes_all() -> None:
    stream, _, _ = reader({A: 10, B: 5})
    assert isinstance(stream.getDefaultReadLimit(), ReadAllAvailable)
    start = stream.initialOffset()
    assert start == {"t": {"0": 0, "1": 0}}
    assert stream.latestOffset(start, ReadAllAvailable()) == {"t": {"0": 10, "1": 5}}


def test_a_limit_is_kept_unless_spark_asks_for_all() -> None:
    stream, _, _ = reader({A: 100}, maxoffsetspertrigger="30")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    assert stream.latestOffset({"t": {"0": 50}}, limit) == {"t": {"0": 80}}
    assert stream.latestOffset({"t": {"0": 50}}, ReadAllAvailable()) == {"t": {"0": 100}}


def test_available_now_never_passes_its_target() -> None:
    stream, planner, _ = reader({A: 10}, maxoffsetspertrigger="8")
    stream.prepareForTriggerAvailableNow()
    planner.ends = {A: 99, B: 99}
    offset = stream.latestOffset({"t": {"0": 0}}, ReadMaxRows(8))
    assert offset == {"t": {"0": 8}}
    assert stream.latestOffset(offset, ReadMaxRows(8)) == {"t": {"0": 10}}
    assert stream.latestOffset({"t": {"0": 10}}, ReadMaxRows(8)) == {"t": {"0": 10}}
    assert stream.reportLatestOffset() == {"t": {"0": 99, "1": 99}}


def test_a_minimum_waits_until_the_longest_delay_is_over() -> None:
    stream, planner, clock = reader({A: 5}, minoffsetspertrigger="10", maxtriggerdelay="60s")
    limit, start = stream.getDefaultReadLimit(), {"t": {"0": 0}}
    assert stream.latestOffset(start, limit) == start
    clock.now = 59_999
    assert stream.latestOffset(start, limit) == start
    clock.now = 60_000
    taken = stream.latestOffset(start, limit)
    assert taken == {"t": {"0": 5}}
    planner.ends = {A: 8}
    assert stream.latestOffset(taken, limit) == taken
    planner.ends = {A: 15}
    assert stream.latestOffset(taken, limit) == {"t": {"0": 15}}


def test_a_minimum_does_not_hold_available_now_up() -> None:
    stream, _, _ = reader({A: 5}, minoffsetspertrigger="10")
    stream.prepareForTriggerAvailableNow()
    assert stream.latestOffset({"t": {"0": 0}}, stream.getDefaultReadLimit()) == {"t": {"0": 5}}


def test_a_new_partition_is_limited_from_its_first_offset() -> None:
    stream, planner, _ = reader({A: 10, B: 1000})
    planner.starts = {B: 900}
    assert stream.latestOffset({"t": {"0": 10}}, ReadMaxRows(40)) == {"t": {"0": 10, "1": 940}}


@pytest.mark.parametrize(
    ("start", "words"),
    [({"0": 11}, "ends at 10, but was read up to 11"), ({"0": 1, "7": 3}, "gone: t-7")],
)
def test_lost_partitions_and_offsets_fail_the_query(start: dict[str, int], words: str) -> None:
    stream, _, _ = reader({A: 10})
    with pytest.raises(DataLossError, match=words):
        stream.latestOffset({"t": start}, ReadAllAvailable())
    lenient, _, _ = reader({A: 10}, failondataloss="false")
    assert lenient.latestOffset({"t": start}, ReadAllAvailable()) == {"t": {"0": 10}}


def test_a_topic_made_anew_fails_the_query_however_long_it_is() -> None:
    stream, planner, _ = reader({A: 10})
    planner.made_anew = ["t"]
    with pytest.raises(DataLossError, match="Topic t was deleted and created again"):
        stream.latestOffset({"t": {"0": 4}}, ReadAllAvailable())


def test_the_same_offsets_give_the_same_ranges() -> None:
    stream, _, _ = reader({}, minpartitions="4")
    start, end = {"t": {"0": 10}}, {"t": {"0": 30, "1": 7}}
    ranges = [part.value for part in stream.partitions(start, end)]
    assert [(r.partition, r.start, r.end) for r in ranges] == [
        (0, 10, 16), (0, 16, 23), (0, 23, 30), (1, 0, 7),
    ]  # fmt: skip
    again, _, _ = reader({}, minpartitions="4")
    assert [part.value for part in again.partitions(start, end)] == ranges
    assert not stream.partitions(end, end)


def test_workers_get_a_copy_without_the_drivers_connection() -> None:
    stream, _, _ = reader({A: 1})
    assert pickle.loads(pickle.dumps(stream))._planner is None
