"""A leader with damaged, unknown or impossible responses: only their partitions are affected."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest, PartitionData
from barnabas.protocol.messages.log_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from barnabas.record.batch import set_crc, set_offset_and_epoch
from barnabas.replication.partition.partition_registry import ImageBrokers
from unit.replication.following_broker import FollowingBroker, data, records
from unit.replication.replicated_cluster import PARTITION, Node
from unit.storage.control_batches import DAMAGED, control_batch

BACKOFF_MS = 1_000
# Larger than every code that Kafka 4.4 has, and below the smallest.
UNKNOWN_CODES = (999, -7)


class RaisingLog:
    """A log whose appends raise an unexpected error."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    @property
    def appender(self) -> None:
        raise RuntimeError("not foreseen")

    def truncate_to(self, _: int) -> None:
        raise RuntimeError("not foreseen")


def break_log(node: Node, key: Any) -> None:
    broken = RaisingLog(node.log(key))
    node.partition(key)._state.log = broken
    node.logs.logs[key] = broken


@pytest.fixture
def broker() -> FollowingBroker:
    return FollowingBroker(partitions=2)


def give_both(broker: FollowingBroker, bad: PartitionData, **fields: Any) -> None:
    """Respond for partition 0 with `bad`, and for partition 1 with one good record."""
    good = data(records(b"good"), high_watermark=1)
    broker.leader.give({broker.key(0): bad, broker.key(1): good}, session_id=0, **fields)


def assert_only_the_first_is_affected(broker: FollowingBroker) -> None:
    assert broker.node.values(broker.key(1)) == [b"good"]
    assert broker.fetchers.dead_count == 0
    assert list(broker.asked()) == [broker.key(1)]
    assert broker.asked()[broker.key(1)].fetch_offset == 1


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_marker_delays_its_partition_and_is_not_written(broker, name: str) -> None:
    """Corrupt records mean delayed, as in Kafka (InvalidRecordException)."""
    damaged = bytearray(DAMAGED[name])
    set_offset_and_epoch(damaged, 0, 0, 0)
    give_both(broker, data(bytes(damaged), high_watermark=1))
    assert_only_the_first_is_affected(broker)
    assert broker.is_delayed()
    assert broker.log.size == 0


def test_an_unexpected_error_of_an_append_fails_its_partition_only(broker, caplog) -> None:
    """An unexpected error means failed, until the leadership changes."""
    break_log(broker.node, broker.key(0))
    give_both(broker, data(records(b"bad"), high_watermark=1))
    assert_only_the_first_is_affected(broker)
    assert broker.fetchers.failed == [broker.key(0)]
    assert "RuntimeError: not foreseen" in caplog.text
    assert broker.key(0) in [each.args[0] for each in caplog.records]


def test_an_unexpected_error_of_a_truncation_fails_only_its_partition(broker) -> None:
    """The other partitions are truncated and fetched."""
    for index in (0, 1):
        broker.node.log(broker.key(index)).appender.append_as_follower(records(b"0"))
        broker.node.log(broker.key(index)).appender.append_as_follower(
            records(b"1", offset=1, epoch=1)
        )
    for leader in (3, 2):
        for index in (0, 1):
            broker.lead(leader, broker.key(index))
    broker.run_for(50)
    break_log(broker.node, broker.key(0))
    cut = {broker.key(index): data(diverging=(0, 1)) for index in (0, 1)}
    broker.leader.give(cut, session_id=0)
    assert broker.fetchers.failed == [broker.key(0)]
    assert broker.node.values(broker.key(1)) == [b"0"]
    assert list(broker.asked()) == [broker.key(1)]


@pytest.mark.parametrize("code", UNKNOWN_CODES)
def test_an_unknown_error_code_of_a_partition_delays_it(broker, code: int) -> None:
    give_both(broker, data(error_code=code))
    assert_only_the_first_is_affected(broker)
    assert broker.is_delayed()


@pytest.mark.parametrize("code", UNKNOWN_CODES)
def test_an_unknown_error_code_of_a_fetch_delays_its_partitions(broker, code: int) -> None:
    broker.leader.give({}, session_id=0, error=code)
    assert broker.fetchers.dead_count == 0
    assert all(broker.is_delayed(broker.key(index)) for index in (0, 1))
    broker.run_for(BACKOFF_MS + 20)
    assert len(broker.asked()) == 2


@pytest.mark.parametrize("offset_and_code", [(9, 999), (9, -7), (-1, 0), (-(1 << 63), 0)])
@pytest.mark.parametrize("question", ["end", "start"])
def test_an_impossible_list_offsets_response_delays_the_partition(
    broker, question: str, offset_and_code: tuple[int, int]
) -> None:
    """It is requested again later; until then the other partition is fetched."""
    give_both(broker, data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert isinstance(broker.leader.waiting, ListOffsetsRequest)
    if question == "start":
        broker.leader.give_offset(PARTITION, 9)
    broker.leader.give_offset(PARTITION, *offset_and_code)
    assert_only_the_first_is_affected(broker)
    assert broker.is_delayed()
    broker.leader.give({broker.key(1): data()}, session_id=0)
    broker.run_for(BACKOFF_MS + 20)
    broker.leader.give({broker.key(1): data()}, session_id=0)
    assert set(broker.asked()) == {broker.key(0), broker.key(1)}


def test_a_list_offsets_response_that_cannot_be_read_delays_the_partition(broker) -> None:
    give_both(broker, data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    broker.leader.answer(object())
    assert broker.fetchers.dead_count == 0
    assert broker.is_delayed()
    broker.run_for(BACKOFF_MS + 20)
    assert isinstance(broker.leader.waiting, FetchRequest)


@pytest.mark.parametrize("end", [(3, -5), (-5, 3), (-2, -2), (1, -(1 << 63))])
def test_an_impossible_diverging_epoch_delays_the_partition(broker, end: tuple[int, int]) -> None:
    give_both(broker, data(diverging=end))
    assert_only_the_first_is_affected(broker)
    assert broker.is_delayed()


@pytest.mark.parametrize(
    ("epoch", "end_offset", "code"), [(0, 1, 999), (0, 1, -7), (3, -5, 0), (-5, 3, 0)]
)
def test_an_impossible_end_offset_of_an_epoch_delays_the_partition(
    monkeypatch: pytest.MonkeyPatch, epoch: int, end_offset: int, code: int
) -> None:
    """The leader does not detect divergence itself, so it gets OffsetForLeaderEpoch requests."""
    monkeypatch.setattr(ImageBrokers, "fetch_version", lambda _: 11)
    broker = FollowingBroker()
    broker.log.appender.append_as_follower(records(b"0"))
    broker.lead(3)
    broker.lead(2)
    assert isinstance(broker.leader.waiting, OffsetForLeaderEpochRequest)
    broker.leader.give_epoch_end(PARTITION, epoch, end_offset, code)
    assert broker.fetchers.dead_count == 0
    assert broker.is_delayed()
    assert broker.node.values() == [b"0"]
    broker.run_for(BACKOFF_MS + 20)
    assert isinstance(broker.leader.waiting, OffsetForLeaderEpochRequest)


# Whatever a leader answers about one partition.

NUMBERS = st.one_of(
    st.sampled_from([-(1 << 63), -5, -1, 0, 1, 2, (1 << 31) - 1, (1 << 63) - 1]), st.integers(0, 6)
)
EPOCHS = st.sampled_from([-(1 << 31), -5, -1, 0, 1, 2, (1 << 31) - 1])
CODES = st.sampled_from([0, 0, 0, 1, 3, 6, 56, 74, 75, 100, 999, -1, -7])


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """Batches as a leader has them, at any offset; damaged ones with and without a valid CRC."""
    made = bytearray()
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            one = bytearray(control_batch(draw(st.binary(max_size=6)), draw(st.binary(max_size=8))))
        else:
            one = bytearray(records(b"x", b"y"))
        offset = draw(NUMBERS)
        one[:8] = offset.to_bytes(8, "big", signed=True)
        one[12:16] = draw(EPOCHS).to_bytes(4, "big", signed=True)
        if draw(st.booleans()):
            one[draw(st.integers(8, len(one) - 1))] ^= 1 << draw(st.integers(0, 7))
        if draw(st.booleans()) and int.from_bytes(one[8:12], "big", signed=True) == len(one) - 12:
            set_crc(one, 0, len(one))
        made += one
    return bytes(made[: draw(st.integers(0, len(made)))] if draw(st.booleans()) else made)


@st.composite
def parts(draw: st.DrawFn) -> PartitionData:
    fields: dict[str, Any] = {
        "error_code": draw(CODES),
        "high_watermark": draw(NUMBERS),
        "log_start_offset": draw(NUMBERS),
    }
    if draw(st.integers(0, 3)) == 0:
        fields["diverging"] = (draw(EPOCHS), draw(NUMBERS))
    return data(draw(contents()), **fields)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(parts(), NUMBERS, CODES), min_size=1, max_size=6))
def test_random_responses_for_a_partition_do_not_affect_another(steps: list) -> None:
    """No response ends the fetcher, breaks an invariant or delays the other partition."""
    broker = FollowingBroker(partitions=2)
    bad, good = broker.key(0), broker.key(1)
    expected = []
    for part, offset, code in steps:
        while not isinstance(broker.leader.waiting, FetchRequest):
            broker.leader.give_offset(bad, offset, code)
        answers = {}
        asked = broker.asked()
        if bad in asked:
            answers[bad] = part
        if good in asked:
            content = records(b"good", offset=len(expected))
            answers[good] = data(content, high_watermark=len(expected) + 1)
            expected.append(b"good")
        broker.leader.give(answers, session_id=0)
        log = broker.node.log(bad)
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert broker.fetchers.dead_count == 0
        broker.run_for(BACKOFF_MS + 20)
    assert broker.node.values(good) == expected
    assert len(expected) == len(steps)
