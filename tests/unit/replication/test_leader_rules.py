"""What a leader may commit, whom it takes in, and what it counts: rules that need a second look."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.alter_partition import AlterPartitionResult
from unit.replication.replica_set import LEADER, TOPIC, WHERE, ReplicaSet, batch

# replica.lag.time.max.ms
LAG_MS = 30_000


@pytest.fixture
def alone() -> ReplicaSet:
    return ReplicaSet((1,))


@pytest.fixture
def three() -> ReplicaSet:
    return ReplicaSet((1, 2, 3), min_insync_replicas=2)


def test_exactly_the_minimum_is_enough_to_answer_at_once(alone) -> None:
    """Min bytes reached."""
    alone.produce(b"a")
    alone.consume(0, max_wait_ms=500, min_bytes=len(batch(b"a")))
    assert len(alone.last_fetch().records) == len(batch(b"a"))


def test_outdated_metadata_changes_nothing_on_a_follower(three) -> None:
    """A registration of an earlier partition epoch."""
    before = three.image.topics.partition(TOPIC, 0)
    three.change(leader=2)
    partition = three.partition
    assert (partition.leader_id, partition.leader_epoch) == (2, 1)
    assert not partition.become_follower(replace(before, leader=3))
    assert (partition.leader_id, partition.leader_epoch) == (2, 1)


def test_a_follower_joins_only_with_what_this_leadership_began_with() -> None:
    """Its log end offset >= the start of the current leader epoch, wherever the high watermark
    of a new leader is."""
    replicas = ReplicaSet((1, 2, 3))
    replicas.produce(b"a", b"b", b"c")
    replicas.change(leader=2, isr=[1, 2])
    replicas.change(leader=1)
    assert replicas.log.high_watermark == 0
    assert replicas.partition.leader.leader_epoch_start_offset == 3
    replicas.follow(3, 2)
    assert not replicas.sender.sent
    replicas.follow(3, 3)
    assert len(replicas.sender.sent) == 1


def test_only_the_registration_that_is_known_joins() -> None:
    """KIP-903: its broker epoch matches."""
    replicas = ReplicaSet((1, 2, 3))
    replicas.change(isr=[1, 2])
    replicas.follow(3, 0, replica_epoch=104)
    assert not replicas.sender.sent, "a registration that this broker has not heard of"
    replicas.follow(3, 0)
    assert len(replicas.sender.sent) == 1


def test_an_answer_to_an_earlier_proposal_is_ignored() -> None:
    """Partition epoch guards against stale answers."""
    replicas = ReplicaSet((1, 2, 3))
    replicas.change(isr=[1])
    replicas.follow(2, 0)
    replicas.change(isr=[1])
    replicas.follow(3, 0)
    (_, answer_first), (second, _) = replicas.sender.sent
    answer_first(AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA))
    assert replicas.partition.leader.isr_state.is_in_flight
    assert replicas.partition.leader.is_waiting_for(second)


@pytest.mark.parametrize("is_reassignment", [False, True])
def test_bytes_for_replicas_that_are_added_are_counted_apart(alone, is_reassignment) -> None:
    """Reassignment traffic measured apart."""
    alone.produce(b"a")
    alone.consume(0)
    result = alone.last_fetch()
    result.is_reassignment = is_reassignment
    alone.manager.count_sent(WHERE, result)
    metrics, size = alone.manager.metrics, len(result.records)
    assert metrics.replication_bytes_out == size
    assert metrics.reassignment_bytes_out == (size if is_reassignment else 0)


def test_what_is_sent_of_a_throttled_partition_counts_once(alone) -> None:
    """The leader counts throttled partitions' bytes, when the answer is sent."""
    throttle = alone.manager.throttles.leader
    throttle.set_replicas(TOPIC, ["*"], LEADER)
    alone.produce(b"a")
    alone.consume(0)
    assert throttle.byte_rate() == 0
    alone.manager.count_sent(WHERE, alone.last_fetch())
    assert throttle.byte_rate() == len(alone.last_fetch().records)


def test_a_member_that_is_only_proposed_holds_the_high_watermark_however_far_it_lags() -> None:
    """The controller may have taken it in already."""
    replicas = ReplicaSet((1, 2, 3))
    replicas.change(isr=[1, 2])
    replicas.follow(3, 0)
    assert replicas.partition.leader.isr_state.is_in_flight
    replicas.world.run_for(LAG_MS + 1)
    replicas.produce(b"a")
    replicas.follow(2, 1)
    assert replicas.log.high_watermark == 0
    replicas.follow(3, 1)
    assert replicas.log.high_watermark == 1


def test_the_high_watermark_waits_for_a_follower_that_may_join_while_another_is_proposed() -> None:
    """Else it would run ahead of that follower for good."""
    replicas = ReplicaSet((1, 2, 3))
    replicas.change(isr=[1])
    replicas.follow(2, 0)
    replicas.follow(3, 0)
    assert replicas.partition.leader.isr_state.proposed_isr == (1, 2)
    replicas.produce(b"a")
    replicas.follow(2, 1)
    assert replicas.log.high_watermark == 0
    replicas.follow(3, 1)
    assert replicas.log.high_watermark == 1


def test_an_answer_that_moves_the_high_watermark_wakes_who_waits() -> None:
    """The last one that was waited for has left the ISR."""
    replicas = ReplicaSet((1, 2))
    replicas.manager.start()
    replicas.produce(b"a", acks=-1, timeout_ms=10 * LAG_MS)
    assert replicas.world.run_until(lambda: bool(replicas.sender.sent), 3 * LAG_MS)
    assert not replicas.answers.produced
    ((proposal, on_done),) = replicas.sender.sent
    assert proposal.broker_ids == (1,)
    on_done(AlterPartitionResult(ErrorCode.NONE, 1, 0, (1,), 1))
    assert replicas.last_produce().error is ErrorCode.NONE


def test_an_answer_of_an_earlier_partition_epoch_than_ours_says_nothing() -> None:
    """Metadata has told of it, and of what came after it, before the answer did."""
    replicas = ReplicaSet((1, 2, 3))
    replicas.change(isr=[1, 2])
    replicas.follow(3, 0)
    ((_, on_done),) = replicas.sender.sent
    before = replicas.partition.leader.isr_state
    on_done(AlterPartitionResult(ErrorCode.NONE, 1, 0, (1, 2, 3), 0))
    assert replicas.partition.leader.isr_state == before
    assert replicas.partition.partition_epoch == 1
