"""The stream reader's decisions, with a planner that reads from a dictionary."""

from __future__ import annotations

import pickle
from collections.abc import Container, Iterable, Mapping

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from barnabas.client.errors import UnknownTopicError
from barnabas.client.group.group_offsets import CommittedOffset
from barnabas.client.topic_partition import TopicPartition
from barnabas.spark.errors import DataLossError
from barnabas.spark.topics.offsets import OffsetRange, Offsets
from barnabas.spark.topics.options import parse_source_options
from barnabas.spark.topics.reader import TopicStreamReader

A, B, U = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class FixedPlanner:
    """A cluster whose ends the test moves."""

    def __init__(self, ends: Offsets) -> None:
        self.ends = ends
        self.starts: Offsets = {}
        # The ids of topics, and the old ids of those that were recreated since the last look.
        self.ids: dict[str, bytes] = {}
        self.made_anew: dict[str, bytes] = {}
        # Topics that do not exist, though they are selected.
        self.gone: set[str] = set()
        # Number of requests for the ends.
        self.lookups = 0

    def partitions(self, may_be_gone: Container[str] = ()) -> list[TopicPartition]:
        for topic in self.gone:
            if topic not in may_be_gone:
                raise UnknownTopicError(topic)
        return sorted(tp for tp in self.ends if tp.topic not in self.gone)

    def recreated(self) -> dict[str, bytes]:
        found, self.made_anew = self.made_anew, {}
        return found

    def last_id(self, topic: str) -> bytes | None:
        return self.ids.get(topic)

    def current_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        return {name: self.ids[name] for name in topics if name not in self.gone}

    def recreate(self, topic: str) -> None:
        self.made_anew[topic] = self.ids[topic]
        self.ids[topic] = b"another id of it"

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        self.lookups += 1
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
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "mirroroffsets": "false"} | options
    clock, planner = HandClock(), FixedPlanner(ends)
    made = TopicStreamReader(parse_source_options(given, streaming=True), StructType(), clock)
    made._planner = planner  # type: ignore[assignment]
    return made, planner, clock


def test_without_a_limit_a_trigger_takes_all_offsets() -> None:
    stream, _, _ = reader({A: 10, B: 5})
    assert isinstance(stream.getDefaultReadLimit(), ReadAllAvailable)
    start = stream.initialOffset()
    assert start == {"t": {"0": 0, "1": 0}}
    assert stream.latestOffset(start, ReadAllAvailable()) == {"t": {"0": 10, "1": 5}}


def test_a_limit_applies_unless_spark_requests_all() -> None:
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


def test_a_trigger_looks_up_the_ends_once() -> None:
    stream, planner, _ = reader({A: 10})
    start = stream.initialOffset()
    for end in range(20, 50, 10):
        planner.ends = {A: end}
        start = stream.latestOffset(start, ReadAllAvailable())
        assert stream.reportLatestOffset() == start == {"t": {"0": end}}
    assert planner.lookups == 3


def test_a_minimum_waits_until_the_longest_delay_is_over() -> None:
    stream, planner, clock = reader({A: 5}, minoffsetspertrigger="10", maxtriggerdelay="60s")
    limit = stream.getDefaultReadLimit()
    start = stream.latestOffset({"t": {"0": 0}}, limit)
    assert start == {"t": {"0": 5}}, "the first trigger does not wait"
    planner.ends = {A: 8}
    clock.now = 59_999
    assert stream.latestOffset(start, limit) == start
    clock.now = 60_000
    taken = stream.latestOffset(start, limit)
    assert taken == {"t": {"0": 8}}
    planner.ends = {A: 17}
    assert stream.latestOffset(taken, limit) == taken
    planner.ends = {A: 18}
    assert stream.latestOffset(taken, limit) == {"t": {"0": 18}}


def test_a_minimum_does_not_delay_available_now() -> None:
    stream, _, _ = reader({A: 5}, minoffsetspertrigger="10")
    stream.prepareForTriggerAvailableNow()
    assert stream.latestOffset({"t": {"0": 0}}, stream.getDefaultReadLimit()) == {"t": {"0": 5}}


def test_a_new_partition_is_limited_from_its_first_offset() -> None:
    stream, planner, _ = reader({A: 10, B: 1000})
    planner.starts = {B: 900}
    assert stream.latestOffset({"t": {"0": 10}}, ReadMaxRows(40)) == {"t": {"0": 10, "1": 940}}


@pytest.mark.parametrize(
    ("start", "words"),
    [({"0": 11}, "ends at 10, but was read up to 11"), ({"0": 1, "7": 3}, "exist: t-7")],
)
def test_lost_partitions_and_offsets_fail_the_query(start: dict[str, int], words: str) -> None:
    stream, _, _ = reader({A: 10})
    with pytest.raises(DataLossError, match=words):
        stream.latestOffset({"t": start}, ReadAllAvailable())
    lenient, _, _ = reader({A: 10}, failondataloss="false")
    assert lenient.latestOffset({"t": start}, ReadAllAvailable()) == {"t": {"0": 10}}


ID = b"the id of topic "
RECREATED = "Topic t was deleted, or deleted and created again, after .* t-0 up to offset 4"


def test_a_recreated_topic_of_any_length_fails_the_query_until_someone_decides() -> None:
    stream, planner, _ = reader({A: 10})
    planner.ids = {"t": ID}
    planner.recreate("t")
    start = {"t": {"0": 4}}
    end = stream.latestOffset(start, ReadAllAvailable())
    restarted, later, _ = reader({A: 10})
    later.ids = planner.ids
    for query in (stream, restarted, restarted):
        with pytest.raises(DataLossError, match=RECREATED):
            query.partitions(start, end)
    lenient, later, _ = reader({A: 10}, failondataloss="false")
    later.ids = planner.ids
    assert lenient.partitions(start, end) == []
    after = lenient.latestOffset(end, ReadAllAvailable())
    assert after == {"t": {"0": 10}}
    (part,) = lenient.partitions(end, after)
    assert part.value == OffsetRange("t", 0, 0, 10), "the new topic is read from its beginning"


def test_a_topic_that_a_broker_did_not_name_continues_where_it_was() -> None:
    stream, planner, _ = reader({A: 10, U: 5}, subscribe="t,u")
    planner.ids = {"t": ID, "u": b"another id of it"}
    planner.gone = {"t"}
    start = {"t": {"0": 4}, "u": {"0": 5}}
    end = stream.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLossError, match=RECREATED):
        stream.partitions(start, end)
    planner.gone.clear()
    assert stream.partitions(start, end) == []
    after = stream.latestOffset(end, ReadAllAvailable())
    assert after == {"t": {"0": 10}, "u": {"0": 5}}
    (part,) = stream.partitions(end, after)
    assert part.value == OffsetRange("t", 0, 4, 10)


def test_a_partition_that_is_no_longer_selected_fails_the_query() -> None:
    stream, planner, _ = reader({A: 10})
    planner.ids = {"t": ID}
    with pytest.raises(DataLossError, match="no longer exist: t-1"):
        stream.latestOffset({"t": {"0": 4, "1": 3}}, ReadAllAvailable())


def test_a_deleted_topic_fails_the_query_unless_data_loss_is_allowed() -> None:
    stream, planner, _ = reader({A: 10, U: 5}, subscribe="t,u")
    planner.gone = {"u"}
    with pytest.raises(DataLossError, match="exist: u-0"):
        stream.latestOffset({"t": {"0": 4}, "u": {"0": 5}}, ReadAllAvailable())
    lenient, planner, _ = reader({A: 10, U: 5}, subscribe="t,u", failondataloss="false")
    planner.gone = {"u"}
    after = lenient.latestOffset({"t": {"0": 4}, "u": {"0": 5}}, ReadAllAvailable())
    assert after == {"t": {"0": 10}}
    assert lenient.latestOffset(after, ReadAllAvailable()) == after


def test_a_topic_that_never_existed_fails_the_query() -> None:
    stream, planner, _ = reader({A: 10}, subscribe="t,u")
    planner.gone = {"u"}
    with pytest.raises(UnknownTopicError):
        stream.latestOffset({"t": {"0": 4}}, ReadAllAvailable())


class Group:
    """A client whose group is a dictionary."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        self.commits = 0
        monkeypatch.setattr("barnabas.spark.topics.clients.mirroring_client", lambda _: self)

    def commit_offsets(self, _group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.commits += 1
        self.offsets |= {tp: CommittedOffset(offset) for tp, offset in offsets.items()}

    def committed(
        self, _group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        return {tp: self.offsets[tp] for tp in partitions if tp in self.offsets}


def test_a_finished_batch_is_committed_to_the_group_once_and_immediately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Group(monkeypatch)
    stream, _, _ = reader({A: 10}, mirroroffsets="true")
    end = stream.latestOffset({"t": {"0": 4}}, ReadAllAvailable())
    assert group.offsets[A].offset == 4
    stream.commit({"t": {"0": 4}})
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    assert (group.offsets[A].offset, group.commits) == (10, 2)


def test_a_group_shared_with_another_query_logs_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(monkeypatch)
    stream, _, _ = reader({A: 10}, mirroroffsets="true")
    for offset in range(5):
        stream.latestOffset({"t": {"0": offset}}, ReadAllAvailable())
        group.offsets[A] = CommittedOffset(99)
    assert len(caplog.records) == 1
    assert "t-0 was committed at 0, then at 99" in caplog.text


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


def test_the_copy_for_workers_has_no_connection() -> None:
    stream, _, _ = reader({A: 1})
    assert pickle.loads(pickle.dumps(stream))._planner is None
