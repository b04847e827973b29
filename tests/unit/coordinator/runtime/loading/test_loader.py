"""Loading a state partition that holds damaged, forged and transactional records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.coordinator.runtime.loader import Loader
from barnabas.coordinator.runtime.shard import ShardState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.record.batch import HEADER_SIZE, ControlType, set_crc
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import GZIP
from barnabas.record.record import read_varint
from barnabas.storage.results import AppendOrigin
from steps import finish
from unit.coordinator.coordinator_world import STATE, CoordinatorWorld
from unit.coordinator.members_world import MembersWorld
from unit.coordinator.state_records import (
    PRODUCER,
    append,
    append_group,
    append_marker,
    append_record,
    append_transactional,
    member,
    offset_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.executor import Executor


@pytest.fixture
def world() -> MembersWorld:
    return MembersWorld()


def load(world: CoordinatorWorld) -> None:
    """Start a new coordinator that loads the log."""
    world.coordinator = world.new_coordinator()
    world.load()


# Damaged and forged records.


@pytest.mark.parametrize(
    ("members", "fields"),
    [
        ((member("a"), member("a")), {}),
        ((member("a", group_instance_id="i"), member("b", group_instance_id="i")), {}),
        ((member("a", group_instance_id=""), member("b", group_instance_id="")), {}),
        ((member("a"),), {"leader": "b"}),
        ((member("a"),), {"protocol": None}),
        ((member("a"),), {"generation": -1}),
        ((member("a", session_timeout=-1),), {}),
        ((member("a", rebalance_timeout=-2),), {}),
    ],
    ids=[
        "member twice",
        "instance twice",
        "empty instance twice",
        "leader is no member",
        "no protocol",
        "negative generation",
        "negative session timeout",
        "negative rebalance timeout",
    ],
)
def test_an_inconsistent_group_record_leaves_an_empty_group_with_its_offsets(
    world: MembersWorld, members, fields, caplog: pytest.LogCaptureFixture
) -> None:
    append_group(world, member("before"))
    append_record(world, *offset_record(5))
    append_group(world, *members, **fields)
    append_record(world, *offset_record(6, group="other"))
    load(world)
    assert world.describe().group_state == "Empty"
    assert world.committed()[:2] == (ErrorCode.NONE, 5)
    assert world.committed(group="other")[1] == 6
    assert world.coordinator.runtime.skipped_records == 1
    assert "partition=__consumer_offsets-0 offset=2" in caplog.text
    assert world.stable()
    assert world.describe().group_state == "Stable"


def test_a_leader_in_a_record_without_members_is_ignored(world: MembersWorld) -> None:
    append_group(world, leader="gone")
    load(world)
    assert world.stable()


def test_the_generation_wraps_around_to_zero(world: MembersWorld) -> None:
    append_group(world, generation=0x7FFF_FFFF)
    load(world)
    (joined,) = world.begin()
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\x00", b""),
        (b"\x00\x01\x00", b"\x00\x04"),
        (offset_record(1)[0], b"\x00\x7f"),
        (offset_record(1)[0], offset_record(1)[1][:-1]),
        (b"\x00\x02\x00\x01g", b"\xff\xff"),
    ],
    ids=["empty", "short type", "short key", "unknown version", "short value", "bad version"],
)
def test_an_unreadable_record_is_skipped(world: MembersWorld, key, value) -> None:
    append_record(world, key, value)
    append_record(world, *offset_record(5))
    load(world)
    assert world.committed()[:2] == (ErrorCode.NONE, 5)
    assert world.coordinator.runtime.skipped_records == 1


@pytest.mark.parametrize("deltas", [(1, 1), (1, 0), (0, 7), (0, -3)])
def test_a_record_whose_offset_is_out_of_order_is_skipped(
    world: MembersWorld, deltas: tuple[int, int]
) -> None:
    builder = BatchBuilder()
    for offset in (5, 6):
        builder.append(1, *offset_record(offset, group=f"g{offset}"))
    batch = builder.build()
    # A record is: length, attributes, timestamp delta, offset delta, key, value, headers.
    position = HEADER_SIZE
    for delta in deltas:
        length, start = read_varint(batch, position)
        batch[start + 2] = delta * 2 if delta >= 0 else -2 * delta - 1
        position = start + length
    set_crc(batch, 0, len(batch))
    world.replicas.manager.append_records(
        100, -1, {STATE: memoryview(batch)}, AppendOrigin.COORDINATOR, lambda _: None
    )
    append_record(world, *offset_record(7))
    load(world)
    assert world.coordinator.runtime.state(0) is ShardState.ACTIVE
    assert world.committed(group="g5")[:2] == (ErrorCode.NONE, 5)
    assert world.committed(group="g6")[:2] == (ErrorCode.NONE, -1)
    assert world.committed()[:2] == (ErrorCode.NONE, 7)
    assert world.coordinator.runtime.skipped_records == 1


def test_a_record_of_an_unknown_type_is_ignored(world: MembersWorld) -> None:
    append_record(world, b"\x00\x63new", b"value")
    append_record(world, b"\xff\xffnew", None)
    load(world)
    assert world.commit() == ErrorCode.NONE
    assert world.coordinator.runtime.skipped_records == 0


def test_a_batch_with_a_wrong_crc_is_skipped(world: MembersWorld) -> None:
    append_record(world, *offset_record(4))
    append_record(world, *offset_record(5))
    file = world.log.segments[0].file
    content = bytearray(file.read_at(world.log.size, 0))
    content[70] ^= 1
    file.write_at(bytes(content), 0)
    load(world)
    assert world.committed()[:2] == (ErrorCode.NONE, 5)
    assert world.coordinator.runtime.skipped_records == 1


def test_a_batch_whose_records_do_not_fit_is_skipped(world: MembersWorld) -> None:
    builder = BatchBuilder()
    builder.append(1, *offset_record(4))
    builder.record_count = 3
    builder._last_offset_delta = 2
    append(world, builder)
    end_offset = world.log.log_end_offset
    append_record(world, *offset_record(5))
    assert end_offset == 3
    load(world)
    assert world.committed()[:2] == (ErrorCode.NONE, 5)


def test_an_unexpected_error_while_loading_fails_only_the_partition(
    world: MembersWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append_record(world, *offset_record(5))
    world.coordinator = world.new_coordinator()
    world.coordinator.runtime.on_elected(0, 0)
    (shard,) = world.coordinator.runtime.shards()
    shard.offsets._by_group = None
    monkeypatch.setattr(shard.__class__, "replay", lambda *_: {}["nothing"])
    world.run_for(50)
    assert world.coordinator.runtime.state(0) is ShardState.FAILED
    assert world.commit() == ErrorCode.NOT_COORDINATOR
    assert "KeyError" in caplog.text


def test_many_skipped_records_get_few_log_lines(
    world: MembersWorld, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        append_record(world, b"\x00", None)
    load(world)
    assert len(caplog.records) == 11
    assert "count=50" in caplog.text


def test_a_large_batch_is_replayed_in_several_turns(world: MembersWorld) -> None:
    builder = BatchBuilder(compression=4)
    for index in range(5_000):
        builder.append(1, *offset_record(index))
    append(world, builder)
    world.coordinator = world.new_coordinator()
    runtime = world.coordinator.runtime
    runtime.on_elected(0, 0)
    turns: list[None] = []

    def is_loaded() -> bool:
        turns.append(None)
        return runtime.state(0) is ShardState.ACTIVE

    assert world.replicas.world.run_until(is_loaded)
    assert len(turns) >= 5
    assert world.committed()[1] == 4_999


class CountingExecutor:
    """Records the calls outside the event loop, and runs them in a later turn."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.calls = 0

    def submit(self, work: Callable[[], Any], on_done: Callable[..., None]) -> None:
        self.calls += 1
        self.executor.submit(work, on_done)


@pytest.mark.parametrize(("value_bytes", "calls"), [(100, 0), (20_000_000, 1)])
def test_a_potentially_large_batch_is_decompressed_outside_the_event_loop(
    world: MembersWorld, value_bytes: int, calls: int
) -> None:
    builder = BatchBuilder(compression=GZIP)
    builder.append(1, *offset_record(5))
    builder.append(1, b"\x7f\xff", bytes(value_bytes))
    append(world, builder)
    runtime = world.replicas.runtime
    executor = CountingExecutor(runtime.executor)
    shard: Any = Replayed()
    outcomes: list[bool] = []
    Loader(world.log, shard, runtime.timer, executor, outcomes.append).start()
    world.run_for(50)
    assert (outcomes, executor.calls) == ([True], calls)
    assert [len(value) for value in shard.values][-1] == value_bytes


def test_each_slice_of_replayed_records_is_committed_up_to_the_high_watermark(
    world: MembersWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = BatchBuilder(compression=4)
    for index in range(2_500):
        builder.append(1, *offset_record(index))
    append(world, builder)
    runtime = world.replicas.runtime
    for high_watermark, commits in ((2_500, [1_000, 2_000, 2_500]), (1_500, [1_000, 1_500, 1_500])):
        of_the_log = property(lambda _, offset=high_watermark: offset)
        monkeypatch.setattr(type(world.log), "high_watermark", of_the_log)
        shard: Any = Replayed()
        Loader(world.log, shard, runtime.timer, runtime.executor, lambda _: None).start()
        world.run_for(50)
        assert shard.commits == commits


class Replayed:
    """A shard that keeps the values of its records, and the ends of its commits."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.commits: list[int] = []

    def commit(self, end_offset: int) -> None:
        self.commits.append(end_offset)

    def replay(self, _offset: int, _key: bytes, value: bytes, _producer_id: int) -> None:
        self.values.append(value)


# Transactions.


def unstable(world: MembersWorld, *, every_topic: bool = False) -> tuple[int, int]:
    """Return error and offset for a reader that requires stable offsets."""
    topics = [OffsetFetchRequestTopics(name="flights", partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id="g", topics=None if every_topic else topics)
    response = finish(
        world.coordinator.offsets.fetch(OffsetFetchRequest(groups=[group], require_stable=True), 8)
    )
    (found,) = response.groups[0].topics[0].partitions
    return found.error_code, found.committed_offset


def test_an_offset_of_a_committed_transaction_is_committed(world: MembersWorld) -> None:
    append_transactional(world, 5)
    append_marker(world, ControlType.COMMIT)
    load(world)
    assert world.committed()[1] == 5
    assert unstable(world) == (ErrorCode.NONE, 5)


def test_an_offset_of_an_aborted_transaction_is_not_committed(world: MembersWorld) -> None:
    append_record(world, *offset_record(3))
    append_transactional(world, 5)
    append_marker(world, ControlType.ABORT)
    load(world)
    assert world.committed()[1] == 3
    assert unstable(world) == (ErrorCode.NONE, 3)


def test_an_offset_of_an_open_transaction_is_not_committed_and_not_stable(
    world: MembersWorld,
) -> None:
    append_record(world, *offset_record(3))
    append_transactional(world, 5)
    load(world)
    assert world.committed()[1] == 3
    assert unstable(world) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert unstable(world, every_topic=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)


def test_a_transaction_of_another_producer_ends_nothing(world: MembersWorld) -> None:
    append_transactional(world, 5)
    append_marker(world, ControlType.COMMIT, PRODUCER + 1)
    load(world)
    assert world.committed()[1] == -1


def test_a_later_record_of_a_transaction_replaces_an_earlier_one(world: MembersWorld) -> None:
    append_transactional(world, 5)
    append_transactional(world, 6, sequence=1)
    append_marker(world, ControlType.COMMIT)
    load(world)
    assert world.committed()[1] == 6


def test_a_transaction_does_not_replace_an_offset_that_was_recorded_after_its_own(
    world: MembersWorld,
) -> None:
    append_transactional(world, 5)
    append_record(world, *offset_record(8))
    append_marker(world, ControlType.COMMIT)
    load(world)
    assert world.committed()[1] == 8


def test_the_later_record_of_two_transactions_is_committed(world: MembersWorld) -> None:
    append_transactional(world, 5)
    append_transactional(world, 6, producer_id=PRODUCER + 1)
    append_marker(world, ControlType.COMMIT, PRODUCER + 1)
    append_marker(world, ControlType.COMMIT)
    load(world)
    assert world.committed()[1] == 6
