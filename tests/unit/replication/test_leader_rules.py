"""Rules of a leader: commits, ISR changes and counters."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.isr import AlterPartitionResult
from barnabas.replication.partition.partition import Partition
from barnabas.storage.errors import CorruptRecordError, KafkaStorageError, StorageError
from unit.replication.replica_set import LEADER, TOPIC, WHERE, ReplicaSet, batch

# replica.lag.time.max.ms
LAG_MS = 30_000


@pytest.fixture
def alone() -> ReplicaSet:
    return ReplicaSet((1,))


@pytest.fixture
def three() -> ReplicaSet:
    return ReplicaSet((1, 2, 3), min_insync_replicas=2)


def test_exactly_min_bytes_complete_a_fetch_immediately(alone) -> None:
    alone.produce(b"a")
    alone.consume(0, max_wait_ms=500, min_bytes=len(batch(b"a")))
    assert len(alone.last_fetch().records) == len(batch(b"a"))


def test_outdated_metadata_changes_nothing_on_a_follower(three) -> None:
    """The registration has an earlier partition epoch."""
    before = three.image.topics.partition(TOPIC, 0)
    three.change(leader=2)
    partition = three.partition
    assert (partition.leader_id, partition.leader_epoch) == (2, 1)
    assert not partition.become_follower(replace(before, leader=3))
    assert (partition.leader_id, partition.leader_epoch) == (2, 1)


def test_a_follower_joins_the_isr_only_from_the_start_of_the_leader_epoch() -> None:
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


def test_only_the_known_broker_epoch_joins_the_isr() -> None:
    """KIP-903: the broker epoch must match."""
    replicas = ReplicaSet((1, 2, 3))
    replicas.change(isr=[1, 2])
    replicas.follow(3, 0, replica_epoch=104)
    assert not replicas.sender.sent, "a registration that this broker has not heard of"
    replicas.follow(3, 0)
    assert len(replicas.sender.sent) == 1


def test_a_response_to_an_earlier_proposal_is_ignored() -> None:
    """The partition epoch protects against stale responses."""
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
def test_bytes_for_added_replicas_are_counted_separately(alone, is_reassignment) -> None:
    alone.produce(b"a")
    alone.consume(0)
    result = alone.last_fetch()
    result.is_reassignment = is_reassignment
    alone.manager.count_sent(WHERE, result)
    metrics, size = alone.manager.metrics, len(result.records)
    assert metrics.replication_bytes_out == size
    assert metrics.reassignment_bytes_out == (size if is_reassignment else 0)


def test_bytes_of_a_throttled_partition_are_counted_once(alone) -> None:
    """The leader counts them when the response is sent."""
    throttle = alone.manager.throttles.leader
    throttle.set_replicas(TOPIC, ["*"], LEADER)
    alone.produce(b"a")
    alone.consume(0)
    assert throttle.byte_rate() == 0
    alone.manager.count_sent(WHERE, alone.last_fetch())
    assert throttle.byte_rate() == len(alone.last_fetch().records)


def test_a_proposed_isr_member_holds_back_the_high_watermark() -> None:
    """The controller may have added it already."""
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


def test_the_high_watermark_waits_for_a_follower_that_may_join_next() -> None:
    """Otherwise the high watermark would stay ahead of that follower."""
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


def test_a_response_that_advances_the_high_watermark_completes_delayed_requests() -> None:
    """The last replica that held it back has left the ISR."""
    replicas = ReplicaSet((1, 2))
    replicas.manager.start()
    replicas.produce(b"a", acks=-1, timeout_ms=10 * LAG_MS)
    assert replicas.world.run_until(lambda: bool(replicas.sender.sent), 3 * LAG_MS)
    assert not replicas.answers.produced
    ((proposal, on_done),) = replicas.sender.sent
    assert proposal.broker_ids == (1,)
    on_done(AlterPartitionResult(ErrorCode.NONE, 1, 0, (1,), 1))
    assert replicas.last_produce().error is ErrorCode.NONE


def test_a_response_of_an_earlier_partition_epoch_is_ignored() -> None:
    """Metadata with a later epoch arrived before the response."""
    replicas = ReplicaSet((1, 2, 3))
    replicas.change(isr=[1, 2])
    replicas.follow(3, 0)
    ((_, on_done),) = replicas.sender.sent
    before = replicas.partition.leader.isr_state
    on_done(AlterPartitionResult(ErrorCode.NONE, 1, 0, (1, 2, 3), 0))
    assert replicas.partition.leader.isr_state == before
    assert replicas.partition.partition_epoch == 1


def replace_broker(replicas: ReplicaSet, broker_id: int, **fields: object) -> None:
    """Change the registration of a broker in the metadata."""
    image = replicas.image
    changed = replace(image.brokers[broker_id], **fields)
    replicas.image = replace(image, brokers={**image.brokers, broker_id: changed})
    replicas.manager._brokers.image = replicas.image


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refused_expansion_does_not_move_the_high_watermark(error: ErrorCode) -> None:
    """The follower is still caught up, and may join with the next proposal."""
    replicas = ReplicaSet((1, 2, 3))
    replicas.change(isr=[1, 2])
    replicas.follow(3, 0)
    ((_, on_done),) = replicas.sender.sent
    replicas.produce(b"a", acks=-1)
    replicas.follow(2, 1)
    on_done(AlterPartitionResult(error))
    leader = replicas.partition.leader
    assert not leader.isr_state.is_in_flight
    assert leader.isr_state.maximal_isr == (1, 2)
    assert replicas.log.high_watermark == 0
    assert not replicas.answers.produced
    replicas.follow(3, 1)
    assert replicas.log.high_watermark == 1


@pytest.mark.parametrize("fields", [{"in_controlled_shutdown": True}, {"fenced": True}])
def test_a_broker_that_is_fenced_or_shuts_down_is_not_proposed(fields: dict[str, bool]) -> None:
    replicas = ReplicaSet((1, 2, 3))
    replicas.change(isr=[1, 2])
    replace_broker(replicas, 3, **fields)
    replicas.follow(3, 0)
    assert not replicas.sender.sent
    replace_broker(replicas, 3, in_controlled_shutdown=False, fenced=False)
    replicas.follow(3, 0)
    ((proposal, _),) = replicas.sender.sent
    assert proposal.broker_ids == (1, 2, 3)


@pytest.mark.parametrize(
    ("error", "failed"), [(KafkaStorageError("scripted"), 0), (CorruptRecordError("scripted"), 1)]
)
def test_a_storage_error_is_no_failed_fetch(
    alone: ReplicaSet, monkeypatch: pytest.MonkeyPatch, error: StorageError, failed: int
) -> None:
    """Kafka counts the offline directory instead."""

    def read(*_: object) -> object:
        raise error

    monkeypatch.setattr(Partition, "read", read)
    alone.consume(0)
    assert alone.last_fetch().error is error.error_code
    assert alone.manager.metrics.topics[TOPIC].failed_fetch_requests == failed


def test_a_refused_replica_that_cannot_join_no_longer_holds_back_the_high_watermark() -> None:
    """Without this, a write with acks=all would wait for the next append."""
    replicas = ReplicaSet((1, 2, 3))
    replicas.change(isr=[1, 2])
    replicas.follow(3, 0)
    ((_, on_done),) = replicas.sender.sent
    replicas.produce(b"a", acks=-1)
    replicas.follow(2, 1)
    replace_broker(replicas, 3, fenced=True)
    assert replicas.log.high_watermark == 0
    on_done(AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA))
    assert replicas.log.high_watermark == 1
    assert replicas.last_produce().error is ErrorCode.NONE
