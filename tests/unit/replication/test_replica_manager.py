"""Appends, fetches and offsets of a broker, alone and with fake followers."""

from __future__ import annotations

import pytest

from barnabas.metadata.image import ClusterImage
from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
from barnabas.replication.partition.isr import AlterPartitionResult
from barnabas.storage.results import AppendOrigin, FetchIsolation
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from barnabas.waiting.purgatory import DelayedOperation
from barnabas.waiting.steps import run_steps
from unit.replication.replica_set import (
    LEADER,
    PARTITION,
    TOPIC,
    TOPIC_ID,
    WHERE,
    ReplicaSet,
    batch,
)

UNKNOWN = TopicPartition("nowhere", 0)


@pytest.fixture
def alone() -> ReplicaSet:
    return ReplicaSet((1,))


@pytest.fixture
def three() -> ReplicaSet:
    """Brokers 1, 2 and 3 with min.insync.replicas=2."""
    return ReplicaSet((1, 2, 3), min_insync_replicas=2)


# Produce.


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_single_replica_acknowledges_before_the_call_returns(alone, acks: int) -> None:
    alone.produce(b"a", b"b", acks=acks)
    result = alone.last_produce()
    assert (result.error, result.base_offset, result.last_offset) == (ErrorCode.NONE, 0, 1)
    assert alone.log.high_watermark == 2


def test_invalid_acks_are_refused_for_every_partition(alone) -> None:
    alone.produce(b"a", acks=2)
    assert alone.last_produce().error is ErrorCode.INVALID_REQUIRED_ACKS


def test_an_unknown_or_broken_partition_does_not_affect_another(alone) -> None:
    broken = batch(b"b")
    broken[-1] ^= 0xFF
    entries = {UNKNOWN: batch(b"a"), PARTITION: batch(b"c")}
    alone.manager.append_records(
        100, 1, entries, AppendOrigin.CLIENT, alone.answers.produced.append
    )
    assert alone.answers.produced[0][UNKNOWN].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alone.answers.produced[0][PARTITION].error is ErrorCode.NONE
    alone.manager.append_records(
        100, 1, {PARTITION: broken}, AppendOrigin.CLIENT, alone.answers.produced.append
    )
    assert alone.last_produce().error is ErrorCode.CORRUPT_MESSAGE


def test_acks_all_waits_for_every_in_sync_replica(three) -> None:
    three.produce(b"a", acks=-1)
    three.follow(2, 1)
    assert not three.answers.produced
    three.follow(3, 1)
    assert three.last_produce().error is ErrorCode.NONE
    assert three.last_produce().base_offset == 0


class Checked(DelayedOperation):
    """A pending operation that records its checks."""

    def __init__(self, name: str, checks: list[str]) -> None:
        super().__init__(1_000)
        self._name = name
        self._checks = checks

    def try_complete(self) -> bool:
        self._checks.append(self._name)
        return False

    def on_complete(self) -> None:
        raise NotImplementedError


def test_an_append_that_commits_nothing_checks_only_fetches(three) -> None:
    checks: list[str] = []
    three.manager._fetches.watch(Checked("fetch", checks), [PARTITION])
    three.manager._produces.watch(Checked("produce", checks), [PARTITION])
    three.produce(b"a", acks=1)
    assert checks == ["fetch"]
    three.follow(2, 1)
    three.follow(3, 1)
    assert checks == ["fetch", "produce", "fetch"]


def test_acks_all_times_out_without_replication(three) -> None:
    three.produce(b"a", acks=-1, timeout_ms=100)
    three.world.run_for(102)
    assert three.last_produce().error is ErrorCode.REQUEST_TIMED_OUT
    assert three.manager.metrics.delayed_produce_expires == 1


def test_acks_all_fails_when_the_leadership_is_lost(three) -> None:
    three.produce(b"a", acks=-1)
    three.change(leader=2)
    assert three.last_produce().error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_too_few_in_sync_replicas_refuse_acks_all_before_the_append(three) -> None:
    three.change(isr=[1])
    three.produce(b"a", acks=-1)
    assert three.last_produce().error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert three.log.log_end_offset == 0
    three.produce(b"a", acks=1)
    assert three.last_produce().error is ErrorCode.NONE


def test_an_isr_that_shrinks_below_its_minimum_commits_nothing(three) -> None:
    three.produce(b"a", acks=-1, timeout_ms=100)
    three.change(isr=[1])
    assert three.log.high_watermark == 0
    three.world.run_for(102)
    assert three.last_produce().error is ErrorCode.REQUEST_TIMED_OUT


def test_an_isr_that_shrinks_after_the_append_returns_not_enough_replicas_after_append(
    three,
) -> None:
    three.produce(b"a", acks=-1)
    three.follow(2, 1)
    # The minimum rises at the very moment at which the record is committed.
    partition = three.partition
    partition.leader.isr_state = partition.leader.isr_state.committed((1, 2))
    three.log.update_high_watermark(1)
    three.log.update_config(three.log.config.__class__(min_insync_replicas=3))
    three.manager.wake(PARTITION)
    assert three.last_produce().error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_with_flush_messages_acks_wait_for_the_sync() -> None:
    replicas = ReplicaSet((1,), flush_messages=1)
    replicas.produce(b"a", acks=1)
    assert not replicas.answers.produced
    assert replicas.log.high_watermark == 0, "what may be lost with the power is not shown"
    replicas.world.run_for(20)
    assert replicas.last_produce().error is ErrorCode.NONE
    assert replicas.log.recovery_point == 1
    assert replicas.log.high_watermark == 1


def test_with_flush_messages_acks_0_does_not_wait() -> None:
    replicas = ReplicaSet((1,), flush_messages=1)
    replicas.produce(b"a", acks=0)
    assert replicas.last_produce().error is ErrorCode.NONE


def test_appends_during_a_sync_wait_for_the_next_sync() -> None:
    replicas = ReplicaSet((1,), flush_messages=1)
    for value in (b"a", b"b", b"c"):
        replicas.produce(value, acks=-1)
        replicas.world.run_for(1)
    replicas.world.run_for(50)
    assert [each[PARTITION].base_offset for each in replicas.answers.produced] == [0, 1, 2]
    assert replicas.log.high_watermark == 3


# Fetch.


def test_a_fetch_with_min_bytes_is_answered_immediately(alone) -> None:
    alone.produce(b"a")
    alone.consume(0, max_wait_ms=500)
    result = alone.last_fetch()
    assert len(result.records) == len(batch(b"a"))
    assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (1, 1, 0)


@pytest.mark.parametrize("offset", [-1, 5])
def test_an_offset_outside_the_log_is_answered_immediately(alone, offset: int) -> None:
    alone.consume(offset, max_wait_ms=500)
    result = alone.last_fetch()
    assert result.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (result.high_watermark, result.log_start_offset, result.records) == (-1, -1, b"")


def test_a_fetch_without_partitions_is_answered_immediately(alone) -> None:
    params = FetchParams(17, -1, -1, 500, 1, 100, FetchIsolation.HIGH_WATERMARK)
    alone.manager.fetch(params, [], alone.answers.fetched.append)
    assert alone.answers.fetched == [[]]


@pytest.mark.parametrize(
    ("where", "error"),
    [
        (TopicIdPartition(bytes(16), "nowhere", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicIdPartition(b"another topic id", TOPIC, 0), ErrorCode.INCONSISTENT_TOPIC_ID),
        (TopicIdPartition(b"another topic id", "", 0), ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_an_unknown_partition_or_topic_id_is_refused(alone, where, error: ErrorCode) -> None:
    alone.consume(0, where=where, max_wait_ms=500)
    assert alone.last_fetch().error is error


def test_consumers_read_to_the_high_watermark_and_followers_to_the_log_end(three) -> None:
    three.produce(b"a")
    three.consume(0)
    assert three.last_fetch().records == b""
    three.follow(2, 0)
    assert len(three.last_fetch().records) > 0


def test_consumers_of_old_versions_must_fetch_from_the_leader(three) -> None:
    three.change(leader=2)
    three.consume(0, version=10)
    assert three.last_fetch().error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    three.consume(0, version=11)
    assert three.last_fetch().error is ErrorCode.NONE


def test_the_first_batch_exceeds_the_limits_except_in_old_versions(alone) -> None:
    alone.produce(b"x" * 500)
    alone.consume(0, max_bytes=10)
    assert len(alone.last_fetch().records) > 500
    alone.consume(0, max_bytes=10, version=2)
    assert len(alone.last_fetch().records) == 10


def test_the_response_limit_applies_to_all_partitions_together(alone) -> None:
    alone.produce(b"x" * 500)
    params = FetchParams(17, -1, -1, 0, 1, 600, FetchIsolation.HIGH_WATERMARK)
    asked = [(WHERE, FetchPartitionData(0, 10_000)), (WHERE, FetchPartitionData(0, 10_000))]
    alone.manager.fetch(params, asked, alone.answers.fetched.append)
    (_, first), (_, second) = alone.answers.fetched[0]
    assert len(first.records) > 500
    # The rest of the limit is smaller than a batch: nothing rather than a cut one.
    assert second.records == b""


def test_epochs_are_fenced_in_both_directions(alone) -> None:
    alone.change(leader=LEADER)
    alone.consume(0, current_leader_epoch=0)
    assert alone.last_fetch().error is ErrorCode.FENCED_LEADER_EPOCH
    alone.consume(0, current_leader_epoch=2)
    assert alone.last_fetch().error is ErrorCode.UNKNOWN_LEADER_EPOCH
    alone.consume(0, current_leader_epoch=1)
    assert alone.last_fetch().error is ErrorCode.NONE


def test_a_diverging_follower_gets_the_diverging_epoch_and_does_not_join(three) -> None:
    three.produce(b"a", b"b")
    three.change(leader=LEADER)
    three.produce(b"c")
    three.follow(2, 3, last_fetched_epoch=0, max_wait_ms=500)
    result = three.last_fetch()
    assert result.diverging_epoch is not None
    assert tuple(result.diverging_epoch)[:2] == (0, 2)
    assert three.partition.leader.remote_replicas[2].log_end_offset == -1


def test_a_broker_without_a_replica_may_not_fetch_as_a_follower(three) -> None:
    three.follow(4, 0)
    assert three.last_fetch().error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    three.follow(4, 0, current_leader_epoch=0)
    assert three.last_fetch().error is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_fetch_with_an_earlier_broker_epoch_changes_no_follower_state(three) -> None:
    three.produce(b"a")
    three.follow(2, 1, replica_epoch=50)
    assert three.last_fetch().error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert three.partition.leader.remote_replicas[2].log_end_offset == -1


# High watermark and ISR.


def test_the_high_watermark_is_the_smallest_log_end_of_the_isr(three) -> None:
    three.produce(b"a", b"b", b"c")
    three.follow(2, 3)
    three.follow(3, 1)
    assert three.log.high_watermark == 1
    three.follow(3, 2)
    assert three.log.high_watermark == 2


def test_a_lagging_follower_leaves_the_isr_after_the_controllers_response(three) -> None:
    three.manager.start()
    three.produce(b"a")
    three.follow(2, 1)
    three.world.run_for(29_000)
    three.follow(2, 1)
    three.world.run_for(17_000)
    ((proposal, on_done),) = three.sender.sent
    assert proposal.broker_ids == (1, 2)
    assert proposal.new_isr == ((1, 101), (2, 102))
    assert three.log.high_watermark == 0, "the maximal ISR counts while the change is in flight"
    on_done(AlterPartitionResult(ErrorCode.NONE, 1, 0, (1, 2), 1))
    assert three.log.high_watermark == 1
    assert three.manager.metrics.isr_shrinks == 1


def test_a_follower_at_the_high_watermark_joins_the_isr(three) -> None:
    three.change(isr=[1, 2])
    three.produce(b"a")
    three.follow(2, 1)
    three.follow(3, 0)
    assert not three.sender.sent
    three.follow(3, 1)
    ((proposal, on_done),) = three.sender.sent
    assert proposal.broker_ids == (1, 2, 3)
    assert three.partition.leader.isr_state.maximal_isr == (1, 2, 3)
    on_done(AlterPartitionResult(ErrorCode.NONE, 1, 0, (1, 2, 3), 2))
    assert three.partition.leader.isr_state.isr == (1, 2, 3)
    assert three.manager.metrics.isr_expands == 1


def test_an_unclean_leader_reports_its_recovery_in_the_next_proposal(
    three,
) -> None:
    three.change(isr=[1], leader=1, leader_recovery_state=1)
    three.follow(3, 0)
    ((proposal, _),) = three.sender.sent
    assert proposal.broker_ids == (1, 3)
    assert proposal.leader_recovery_state == 0


def test_a_fenced_follower_does_not_join(three) -> None:
    three.change(isr=[1, 2])
    fenced = dict(three.image.brokers)
    fenced[3] = fenced[3].with_fenced(True)
    three.image.brokers.clear()  # type: ignore[attr-defined]
    three.image.brokers.update(fenced)  # type: ignore[attr-defined]
    three.follow(3, 0)
    assert not three.sender.sent


def test_a_response_to_an_outdated_proposal_is_ignored(three) -> None:
    three.change(isr=[1, 2])
    three.follow(3, 0)
    ((_, on_done),) = three.sender.sent
    three.change(isr=[1])
    on_done(AlterPartitionResult(ErrorCode.NONE, 1, 0, (1, 2, 3), 2))
    assert three.partition.leader.isr_state.isr == (1,)
    assert three.partition.partition_epoch == 2


def test_a_refused_proposal_is_withdrawn_and_other_errors_are_retried(three) -> None:
    three.change(isr=[1, 2])
    three.follow(3, 0)
    three.sender.sent.pop()[1](AlterPartitionResult(ErrorCode.NETWORK_EXCEPTION))
    three.world.run_for(60)
    assert len(three.sender.sent) == 1
    three.sender.sent.pop()[1](AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA))
    assert not three.partition.leader.isr_state.is_in_flight
    assert three.manager.metrics.failed_isr_updates == 1


def test_an_older_registration_changes_nothing(three) -> None:
    registration = three.image.topics.partition(TOPIC, 0)
    three.change(isr=[1, 2])
    three.partition.become_leader(registration)
    assert three.partition.leader.isr_state.isr == (1, 2)


# Offsets, epochs, deletion, checkpoints.


def list_offset(replicas: ReplicaSet, timestamp: int, isolation=FetchIsolation.HIGH_WATERMARK):
    result = run_steps(replicas.manager.list_offset(PARTITION, timestamp, isolation, -1))
    return (result.error, result.timestamp, result.offset, result.leader_epoch)


def test_list_offsets_supports_special_timestamps_and_times(alone) -> None:
    alone.produce(b"a", b"b")
    alone.produce(b"c")
    ok = ErrorCode.NONE
    assert list_offset(alone, -1) == (ok, -1, 3, 0)
    assert list_offset(alone, -2) == (ok, -1, 0, 0)
    assert list_offset(alone, -4) == (ok, -1, 0, 0)
    assert list_offset(alone, -3) == (ok, 1_001, 1, 0)
    assert list_offset(alone, -5) == (ok, -1, -1, -1)
    assert list_offset(alone, 1_001) == (ok, 1_001, 1, 0)
    assert list_offset(alone, 5_000) == (ok, -1, -1, -1)


def test_the_latest_offset_depends_on_the_isolation(three) -> None:
    three.produce(b"a")
    assert list_offset(three, -1)[2] == 0
    assert list_offset(three, -1, FetchIsolation.LOG_END)[2] == 1
    assert list_offset(three, 0)[2] == -1, "not committed yet"


def test_a_new_leader_with_a_lagging_high_watermark_returns_offset_not_available(three) -> None:
    three.produce(b"a")
    three.change(leader=LEADER)
    assert list_offset(three, -1)[0] is ErrorCode.OFFSET_NOT_AVAILABLE


def test_offset_queries_check_leader_and_epoch(three) -> None:
    manager = three.manager
    isolation = FetchIsolation.HIGH_WATERMARK
    fenced = run_steps(manager.list_offset(PARTITION, -1, isolation, 9))
    assert fenced.error is ErrorCode.UNKNOWN_LEADER_EPOCH
    three.change(leader=2)
    moved = run_steps(manager.list_offset(PARTITION, -1, isolation, -1))
    assert moved.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    debugging = run_steps(manager.list_offset(PARTITION, -1, isolation, -1, only_leader=False))
    assert debugging.error is ErrorCode.NONE


def old_offsets(replicas: ReplicaSet, timestamp: int, isolation=FetchIsolation.HIGH_WATERMARK):
    return replicas.manager.offsets_before(PARTITION, timestamp, 10, isolation)


def test_list_offsets_v0_ends_at_the_visible_end(three) -> None:
    log = three.manager.partition(PARTITION).log
    three.produce(b"a")
    log.roll()
    three.produce(b"b")
    assert old_offsets(three, -1) == [0, 0], "the high watermark, and the first segment"
    assert old_offsets(three, -1, FetchIsolation.LOG_END) == [2, 1, 0]
    assert old_offsets(three, -2) == [0]
    three.change(leader=2)
    assert old_offsets(three, -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_end_offset_of_a_leader_epoch_is_returned(alone) -> None:
    alone.produce(b"a", b"b")
    alone.change(leader=LEADER)
    alone.produce(b"c")
    assert alone.manager.epoch_end_offset(PARTITION, -1, 0) == (0, 2, ErrorCode.NONE)
    assert alone.manager.epoch_end_offset(PARTITION, -1, 1) == (1, 3, ErrorCode.NONE)
    assert alone.manager.epoch_end_offset(PARTITION, -1, 7) == (-1, -1, ErrorCode.NONE)
    unknown = alone.manager.epoch_end_offset(UNKNOWN, -1, 0)
    assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_delete_records_waits_for_the_log_start_of_followers(three) -> None:
    three.produce(b"a", b"b")
    three.follow(2, 2)
    three.follow(3, 2)
    answers: list = []
    three.manager.delete_records(1_000, {PARTITION: 1}, answers.append)
    assert not answers
    three.follow(2, 2, log_start_offset=1)
    three.follow(3, 2, log_start_offset=1)
    assert answers[0][PARTITION].error is ErrorCode.NONE
    assert answers[0][PARTITION].low_watermark == 1
    assert three.log.log_start_offset == 1


def test_delete_records_to_minus_one_uses_the_high_watermark(three) -> None:
    """The log end may include records that are not committed."""
    three.produce(b"a", b"b", b"c")
    for broker_id in (2, 3):
        three.follow(broker_id, 1, log_start_offset=0)
    assert (three.log.high_watermark, three.log.log_end_offset) == (1, 3)
    answers: list[object] = []
    three.manager.delete_records(1_000, {PARTITION: -1}, answers.append)
    assert three.log.log_start_offset == 1
    for broker_id in (2, 3):
        three.follow(broker_id, 1, log_start_offset=1)
    assert [each[PARTITION].low_watermark for each in answers] == [1]


@pytest.mark.parametrize("offset", [-2, -(1 << 63), 1 << 62])
def test_delete_records_refuses_an_impossible_offset(alone, offset: int) -> None:
    """The error is OFFSET_OUT_OF_RANGE, and nothing is deleted."""
    alone.produce(b"a")
    answers: list[object] = []
    alone.manager.delete_records(1_000, {PARTITION: offset}, answers.append)
    assert answers[0][PARTITION].error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert alone.log.log_start_offset == 0


@pytest.mark.parametrize(
    ("policy", "error"),
    [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", ErrorCode.NONE)],
)
def test_delete_records_refuses_a_topic_that_is_only_compacted(
    policy: str, error: ErrorCode
) -> None:
    """As in Kafka."""
    replicas = ReplicaSet(cleanup_policy=tuple(policy.split(",")))
    answers: list[object] = []
    replicas.manager.delete_records(1_000, {PARTITION: 0}, answers.append)
    assert answers[0][PARTITION].error is error


def test_a_follower_that_catches_up_slowly_joins_before_the_high_watermark_passes_it() -> None:
    """Its fetch expands the ISR first, and then the high watermark includes it."""
    pair = ReplicaSet((1, 2))
    pair.change(isr=[LEADER])
    pair.produce(*[b"x"] * 5)
    pair.follow(2, 5)
    _, on_done = pair.sender.sent.pop()
    on_done(AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA))
    pair.produce(*[b"y"] * 5)
    assert (pair.log.high_watermark, pair.log.log_end_offset) == (5, 10)
    pair.world.run_for(60_000)
    pair.follow(2, 7)
    assert [each.broker_ids for each, _ in pair.sender.sent] == [(1, 2)]
    assert pair.log.high_watermark == 7


def test_min_insync_replicas_counts_the_maximal_isr() -> None:
    """A replica that is about to join counts, as for the high watermark."""
    pair = ReplicaSet((1, 2), min_insync_replicas=2)
    pair.produce(b"a")
    pair.follow(2, 1)
    assert pair.partition.leader.check_enough_replicas(1) is ErrorCode.NONE
    pair.change(isr=[LEADER])
    after_append = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert pair.partition.leader.check_enough_replicas(1) is after_append
    pair.follow(2, 1)
    assert pair.partition.leader.isr_state.isr == (LEADER,)
    assert pair.partition.leader.isr_state.maximal_isr == (1, 2)
    assert pair.partition.leader.check_enough_replicas(1) is ErrorCode.NONE
    assert pair.partition.leader.check_enough_replicas(2) is None


def test_delete_records_refuses_an_offset_above_the_high_watermark(alone) -> None:
    alone.produce(b"a")
    answers: list = []
    alone.manager.delete_records(1_000, {PARTITION: 2, UNKNOWN: 0}, answers.append)
    assert answers[0][PARTITION].error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert answers[0][UNKNOWN].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    alone.manager.delete_records(1_000, {PARTITION: -1}, answers.append)
    assert answers[1][PARTITION].low_watermark == 1


def test_high_watermarks_are_checkpointed_at_intervals(alone) -> None:
    alone.manager.start()
    alone.produce(b"a")
    alone.world.run_for(5_002)
    assert alone.logs.checkpoints == [{PARTITION: 1}]
    alone.manager.shutdown()
    assert len(alone.logs.checkpoints) == 2


def test_a_delta_reports_its_changes(three) -> None:
    assert [each.topic_partition for each in three.changes.leaders] == [PARTITION]
    three.change(leader=2)
    assert [each.topic_partition for each in three.changes.followers] == [PARTITION]
    three.remove_topic()
    assert three.changes.deleted == [PARTITION]
    assert three.manager.partition(PARTITION) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_led_partition_caches_its_epoch_before_the_first_append(three) -> None:
    three.change(leader=LEADER)
    assert three.log.leader_epochs.latest_epoch == 1
    assert three.partition.topic_id == TOPIC_ID


def test_a_log_of_a_deleted_topic_with_the_same_name_is_removed(alone) -> None:
    alone.produce(b"old")
    again = ReplicaSet.__new__(ReplicaSet)
    again.__dict__.update(alone.__dict__)
    again.manager = alone.new_manager()
    again.image = ClusterImage(brokers=alone.image.brokers)
    again.create_topic(b"another topic id")
    assert again.logs.deleted == [PARTITION]
    assert again.log.log_end_offset == 0
    assert again.partition.topic_id == b"another topic id"


def test_a_restarted_leader_continues_with_its_log(alone) -> None:
    alone.produce(b"a", b"b")
    manager = alone.manager
    alone.manager = alone.new_manager()
    alone.image = ClusterImage(brokers=alone.image.brokers)
    alone.create_topic(TOPIC_ID)
    assert alone.manager is not manager
    alone.consume(0)
    assert alone.last_fetch().high_watermark == 2
