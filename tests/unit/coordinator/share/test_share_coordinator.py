"""The share coordinator over a real log: loading, snapshots, pruning, and limits.

`tests/differential/test_share_state_records.py` compares its responses and records with Kafka's.
"""

from __future__ import annotations

import msgspec
import pytest

from barnabas.coordinator.share.share_coordinator import share_families
from barnabas.coordinator.share.share_record import snapshot_record
from barnabas.coordinator.share.share_shard import STATE_BATCHES_MAX
from barnabas.coordinator.share.state_api import READ
from barnabas.metrics import names
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import read_share_group_state as read
from barnabas.record.builder import BatchBuilder
from barnabas.storage.results import AppendOrigin
from unit.coordinator.share.share_world import (
    COLD_MS,
    KEY,
    PRUNE_MS,
    STATE_PARTITION,
    TOPIC_ID,
    ShareWorld,
)
from unit.replication.replica_set import LEADER

FOLLOWER = LEADER + 1


@pytest.fixture
def world() -> ShareWorld:
    return ShareWorld()


def fill(world: ShareWorld, updates: int) -> None:
    world.initialize(0, 0)
    for offset in range(updates):
        assert world.write((offset, offset, 2, 1)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("updates", [0, 1, 3, 4, 9])
def test_a_new_leader_has_the_same_state(world: ShareWorld, updates: int) -> None:
    fill(world, updates)
    before = world.read()
    known = world.shard.partitions[KEY]
    world.start(1)
    after = world.read()
    assert (after.state_epoch, after.start_offset) == (before.state_epoch, before.start_offset)
    assert [str(each) for each in after.state_batches] == [
        str(each) for each in before.state_batches
    ]
    loaded = world.shard.partitions[KEY]
    assert loaded.state == known.state
    assert (loaded.leader_epoch, loaded.state_epoch, loaded.updates) == (
        known.leader_epoch,
        known.state_epoch,
        known.updates,
    )


def test_a_response_waits_for_the_commit() -> None:
    world = ShareWorld(replicas=(LEADER, FOLLOWER))
    done = []
    world.coordinator.runtime.write(
        KEY.coordinator_key,
        lambda shard: shard.initialize(KEY, 0, 0),
        lambda outcome, error: done.append((outcome, error)),
    )
    world.run_for(1_000)
    assert not done
    assert KEY in world.shard.partitions
    world.run_for(10_000)
    assert [error for _, error in done] == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_request_of_more_partitions_than_wait_at_a_time_gets_all_results(
    world: ShareWorld,
) -> None:
    results = world.initialize(0, 7, *range(2_500))
    assert [each.partition for each in results] == list(range(2_500))
    assert {each.error_code for each in results} == {ErrorCode.NONE}
    assert {each.start_offset for each in world.summarize(*range(2_500))} == {7}


def test_the_log_below_the_oldest_last_snapshot_is_deleted(world: ShareWorld) -> None:
    world.initialize(0, 0, 0, 1)
    for offset in range(9):
        world.write((offset, offset, 2, 1), partition=0)
    world.run_for(2 * PRUNE_MS)
    # The snapshot of partition 1 is the second record.
    assert world.log.log_start_offset == 1
    for offset in range(9):
        world.write((offset, offset, 2, 1), partition=1)
    world.run_for(2 * PRUNE_MS)
    oldest = world.shard.redundant.end_offset
    assert 1 < oldest == world.log.log_start_offset
    assert world.coordinator.tasks[0].pruned_offset == oldest
    before = {key: each.state for key, each in world.shard.partitions.items()}
    world.start(1)
    assert {key: each.state for key, each in world.shard.partitions.items()} == before


def test_cold_share_partitions_get_a_snapshot_once(world: ShareWorld) -> None:
    world.initialize(0, 0, *range(250))
    world.write((3, 3, 2, 1), partition=5)
    end_offset = world.log.log_end_offset
    world.run_for(2 * COLD_MS + 1_000)
    assert world.log.log_end_offset == end_offset + 250
    states = [each.state for each in world.shard.partitions.values()]
    assert {each.snapshot_epoch for each in states} == {1}
    assert all(each.write_timestamp_ms > each.create_timestamp_ms for each in states)
    assert [len(each.state_batches) for each in states].count(1) == 1
    world.run_for(3 * COLD_MS)
    assert world.log.log_end_offset == end_offset + 250
    # All older records can be deleted now.
    assert world.log.log_start_offset >= end_offset


def test_periodic_tasks_wait_until_share_groups_are_enabled(world: ShareWorld) -> None:
    world.is_enabled = False
    fill(world, 9)
    end_offset = world.log.log_end_offset
    world.run_for(3 * COLD_MS)
    assert (world.log.log_start_offset, world.log.log_end_offset) == (0, end_offset)
    world.is_enabled = True
    world.run_for(2 * COLD_MS)
    assert world.log.log_start_offset > 0


def test_the_state_of_a_deleted_topic_is_deleted(world: ShareWorld) -> None:
    world.initialize(0, 0, *range(1_200))
    world.initialize(0, 0, topic_id=b"another topic's.")
    world.deleted.add(TOPIC_ID)
    world.coordinator.on_topics_deleted({TOPIC_ID})
    world.run_for(100)
    assert [key.topic_id for key in world.shard.partitions] == [b"another topic's."]
    world.start(1)
    assert len(world.shard.partitions) == 1


def test_more_state_batches_than_a_leader_can_have_are_refused(world: ShareWorld) -> None:
    world.initialize(0, 0)
    most = [(2 * each, 2 * each, 2, 1) for each in range(STATE_BATCHES_MAX)]
    more = [*most, (9_000_000, 9_000_000, 2, 1)]
    assert world.write(*more).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.write(*most).error_code == ErrorCode.NONE
    # One more than the state may have, and one that joins two.
    assert world.write((9_000_000, 9_000_000, 2, 1)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.write((1, 1, 2, 1)).error_code == ErrorCode.NONE
    assert len(world.read().state_batches) == STATE_BATCHES_MAX - 1


def test_many_state_batches_must_be_in_order(world: ShareWorld) -> None:
    world.initialize(0, 0)
    reverse = [(each, each, 2, 1) for each in range(5_000, 0, -1)]
    assert world.write(*reverse).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.write(*reversed(reverse)).error_code == ErrorCode.NONE
    assert len(world.read().state_batches) == 1


def test_a_record_of_batches_that_cannot_be_merged_is_not_written(world: ShareWorld) -> None:
    world.initialize(0, 0)
    world.write((1, 5, 2, 1))
    end_offset = world.log.log_end_offset
    assert world.write((9, 8, 2, 1)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.log.log_end_offset == end_offset
    assert len(world.read().state_batches) == 1


def test_without_a_state_partition_the_error_is_not_coordinator(world: ShareWorld) -> None:
    world.coordinator.runtime.on_resigned(0)
    assert world.write((1, 1, 2, 1)).error_code == ErrorCode.NOT_COORDINATOR
    assert "cannot read share group state" in world.read().error_message


def test_an_empty_request_has_an_empty_response(world: ShareWorld) -> None:
    for topics in ({}, {TOPIC_ID: []}):
        request = world.coordinator.request(READ, READ.make_request("g", topics), lambda: None)
        assert _result_of(request.steps()) == []
    data = read.PartitionData(partition=0, leader_epoch=0)
    request = world.coordinator.request(
        READ, READ.make_request("", {TOPIC_ID: [data]}), lambda: None
    )
    assert _result_of(request.steps()) == []


def _result_of(steps: object) -> object:
    try:
        while True:
            next(steps)  # type: ignore[call-overload]
    except StopIteration as end:
        return end.value.results


def test_writes_are_measured(world: ShareWorld) -> None:
    fill(world, 2)
    world.read(leader_epoch=4)
    found = {each.name: each.samples for each in share_families(world.coordinator)}
    assert list(found[names.SHARE_WRITES]) == [((), 3)]
    assert list(found[names.SHARE_PARTITIONS]) == [((), 1)]


def test_the_last_snapshot_epoch_is_followed_by_the_first_one(world: ShareWorld) -> None:
    """A damaged record may have any epoch. The epoch wraps around, as in Kafka."""
    world.initialize(0, 0, *range(3))
    known = world.shard.partitions[KEY]
    last = msgspec.structs.replace(known.state, snapshot_epoch=(1 << 31) - 1)
    record = snapshot_record(KEY, last)
    builder = BatchBuilder()
    builder.append(1, record.key, record.value)
    batch = {STATE_PARTITION: memoryview(builder.build())}
    origin = AppendOrigin.COORDINATOR
    world.replicas.manager.append_records(100, -1, batch, origin, lambda _: None)
    world.start(1)
    world.run_for(2 * COLD_MS + 1_000)
    epochs = [each.state.snapshot_epoch for each in world.shard.partitions.values()]
    assert sorted(epochs) == [-(1 << 31), 1, 1]
    assert world.coordinator.runtime.failed_timers == 0
