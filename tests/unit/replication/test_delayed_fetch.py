"""Cases A to H that complete a delayed fetch, on a leader with simulated followers."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.topics import PartitionRecord
from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
from barnabas.storage.results import AppendOrigin, FetchIsolation
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from unit.replication.replica_set import LEADER, PARTITION, TOPIC, TOPIC_ID, ReplicaSet, batch

WAIT = {"max_wait_ms": 500, "min_bytes": 1}


@pytest.fixture
def pair() -> ReplicaSet:
    """Broker 1 leads and broker 2 follows; both have one record."""
    replicas = ReplicaSet((1, 2))
    replicas.produce(b"first")
    replicas.follow(2, 1)
    replicas.answers.fetched.clear()
    return replicas


def waits(replicas: ReplicaSet) -> bool:
    return not replicas.answers.fetched


def test_a_consumer_fetch_at_the_high_watermark_waits_until_its_timeout(pair: ReplicaSet) -> None:
    pair.consume(1, **WAIT)
    pair.world.run_for(499)
    assert waits(pair)
    pair.world.run_for(3)
    assert pair.last_fetch().error is ErrorCode.NONE
    assert pair.last_fetch().records == b""
    assert pair.manager.metrics.delayed_fetch_consumer_expires == 1
    assert pair.manager.metrics.delayed_fetch_follower_expires == 0


def test_expired_fetches_of_followers_are_counted_separately(pair: ReplicaSet) -> None:
    pair.follow(2, 1, **WAIT)
    pair.world.run_for(502)
    assert pair.manager.metrics.delayed_fetch_follower_expires == 1


def test_an_append_completes_a_follower_fetch_without_a_new_high_watermark(
    pair: ReplicaSet,
) -> None:
    pair.follow(2, 1, **WAIT)
    pair.produce(b"second")
    assert pair.log.high_watermark == 1
    assert len(pair.last_fetch().records) > 0


def test_a_consumer_fetch_completes_only_when_the_high_watermark_advances(pair: ReplicaSet) -> None:
    pair.consume(1, **WAIT)
    pair.produce(b"second")
    assert waits(pair)
    pair.follow(2, 2)
    consumed = pair.answers.fetched[0][0][1]
    assert len(consumed.records) > 0
    assert consumed.high_watermark == 2


def test_case_a_the_broker_is_no_longer_the_leader(pair: ReplicaSet) -> None:
    pair.follow(2, 1, **WAIT)
    pair.change(leader=2)
    assert pair.last_fetch().error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_case_b_the_replica_has_moved_to_another_broker(pair: ReplicaSet) -> None:
    pair.consume(1, **WAIT)
    pair.change(leader=2, replicas=[2, 3], isr=[2])
    assert pair.last_fetch().error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert pair.logs.deleted == [PARTITION]


def test_case_c_the_topic_is_deleted(pair: ReplicaSet) -> None:
    pair.consume(1, **WAIT)
    pair.remove_topic()
    assert pair.last_fetch().error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_case_d_the_directory_is_offline(pair: ReplicaSet) -> None:
    pair.consume(1, **WAIT)
    assert pair.manager.on_directory_failed("/data") == [PARTITION]
    assert waits(pair), "nobody is woken in the midst of the failure"
    pair.world.run_for(2)
    assert pair.last_fetch().error is ErrorCode.KAFKA_STORAGE_ERROR


def test_case_e_the_leader_epoch_of_the_request_is_fenced(pair: ReplicaSet) -> None:
    pair.consume(1, current_leader_epoch=0, **WAIT)
    pair.change(leader=LEADER)
    assert pair.last_fetch().error is ErrorCode.FENCED_LEADER_EPOCH


def test_case_f_the_log_was_truncated_below_the_fetch_offset(pair: ReplicaSet) -> None:
    pair.produce(b"second")
    pair.follow(2, 2)
    pair.answers.fetched.clear()
    pair.consume(2, **WAIT)
    pair.log.truncate_to(1)
    pair.manager.wake(PARTITION)
    assert pair.last_fetch().error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_case_f_the_fetch_offset_lies_in_an_older_segment_than_the_end(pair: ReplicaSet) -> None:
    pair.follow(2, 1, max_wait_ms=500, min_bytes=1 << 20)
    pair.produce(b"second")
    assert waits(pair), "too few bytes"
    pair.log.roll()
    pair.produce(b"third")
    assert len(pair.last_fetch().records) > 0


def test_a_new_segment_alone_completes_no_fetch(pair: ReplicaSet) -> None:
    pair.follow(2, 1, **WAIT)
    pair.log.roll()
    pair.manager.wake(PARTITION)
    assert waits(pair)


@pytest.mark.parametrize("isolation", [FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED])
@pytest.mark.parametrize("min_bytes", [1, 1 << 20])
def test_an_uncommitted_append_to_a_new_segment_completes_no_fetch_of_a_consumer(
    pair: ReplicaSet, isolation: FetchIsolation, min_bytes: int
) -> None:
    params = FetchParams(17, -1, -1, 500, min_bytes, 1 << 20, isolation)
    where = TopicIdPartition(TOPIC_ID, TOPIC, PARTITION.partition)
    pair.follow(2, 1)
    pair.answers.fetched.clear()
    requested = [(where, FetchPartitionData(1, 1 << 20))]
    pair.manager.fetch(params, requested, pair.answers.fetched.append)
    pair.log.roll()
    pair.produce(b"second")
    pair.manager.wake(PARTITION)
    assert waits(pair)


def test_case_g_bytes_accumulate_up_to_the_minimum(pair: ReplicaSet) -> None:
    size = len(batch(b"second"))
    pair.follow(2, 1, max_wait_ms=500, min_bytes=2 * size)
    pair.produce(b"second")
    assert waits(pair)
    pair.produce(b"second")
    assert len(pair.last_fetch().records) == 2 * size


def test_case_g_counts_the_bytes_of_all_partitions() -> None:
    replicas = ReplicaSet((1, 2))
    other = TopicPartition(TOPIC, 1)
    replicas.replay(
        PartitionRecord(
            partition_id=1, topic_id=TOPIC_ID, replicas=[1, 2], isr=[1, 2], removing_replicas=[],
            adding_replicas=[], leader=LEADER, leader_epoch=0, partition_epoch=0, directories=[],
        )
    )  # fmt: skip
    size = len(batch(b"one"))
    params = FetchParams(17, 2, 102, 500, 2 * size, 1 << 20, FetchIsolation.LOG_END)
    both = [
        (TopicIdPartition(TOPIC_ID, TOPIC, index), FetchPartitionData(0, 1 << 20))
        for index in (0, 1)
    ]
    replicas.manager.fetch(params, both, replicas.answers.fetched.append)
    for key in (PARTITION, other):
        assert waits(replicas)
        replicas.manager.append_records(
            100, 1, {key: batch(b"one")}, AppendOrigin.CLIENT, lambda _: None
        )
    ((_, one), (_, two)) = replicas.answers.fetched[-1]
    assert len(one.records) == len(two.records) == size


def test_case_f_the_end_lies_in_an_older_segment_than_the_fetch_offset(pair: ReplicaSet) -> None:
    """For a consumer, the end is the high watermark, which is lower after a truncation."""
    pair.produce(b"second")
    pair.log.roll()
    pair.produce(b"third")
    pair.follow(2, 3)
    pair.answers.fetched.clear()
    pair.consume(3, max_wait_ms=500, min_bytes=1 << 20)
    assert waits(pair)
    pair.log.update_high_watermark(1)
    pair.manager.wake(PARTITION)
    assert pair.last_fetch().records == b""


def test_case_h_the_leader_ends_the_epoch_with_an_earlier_one(pair: ReplicaSet) -> None:
    """The leader's log never had the epoch of the follower's last record."""
    pair.log.leader_epochs.replace([(0, 0), (2, 1)])
    pair.follow(2, 1, last_fetched_epoch=1, **WAIT)
    assert pair.last_fetch().diverging_epoch == (0, 1, ErrorCode.NONE)


def test_case_g_a_throttled_partition_counts_no_bytes(pair: ReplicaSet) -> None:
    """A new segment (case F) does not complete a fetch of a throttled partition either."""
    pair.change(isr=[1])
    throttle = pair.manager.throttles.leader
    throttle.set_replicas(TOPIC, ["*"], LEADER)
    throttle.bytes_per_second = 10
    throttle.record(1_000_000)
    pair.follow(2, 1, **WAIT)
    pair.produce(b"second")
    pair.log.roll()
    pair.produce(b"third")
    assert waits(pair)
    throttle.bytes_per_second = 1 << 40
    pair.manager.wake(PARTITION)
    assert len(pair.last_fetch().records) > 0


def test_case_g_a_partition_counts_at_most_its_own_maximum(pair: ReplicaSet) -> None:
    pair.follow(2, 1, max_wait_ms=500, min_bytes=100, max_bytes=90)
    pair.produce(b"x" * 200)
    assert waits(pair)


def test_case_g_a_partition_without_room_for_records_counts_no_bytes(pair: ReplicaSet) -> None:
    pair.follow(2, 1, max_wait_ms=500, min_bytes=1, max_bytes=0)
    pair.produce(b"second")
    assert waits(pair)


def test_case_h_the_epoch_of_the_request_is_unknown(pair: ReplicaSet) -> None:
    pair.consume(1, current_leader_epoch=7, **WAIT)
    assert pair.last_fetch().error is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_case_h_the_log_diverged_during_the_wait(pair: ReplicaSet) -> None:
    pair.produce(b"second")
    pair.follow(2, 2)
    pair.answers.fetched.clear()
    pair.follow(2, 2, last_fetched_epoch=0, **WAIT)
    assert waits(pair)
    pair.log.leader_epochs.replace([(0, 0), (1, 1)])
    pair.manager.wake(PARTITION)
    assert pair.last_fetch().diverging_epoch == (0, 1, ErrorCode.NONE)


def test_a_delayed_fetch_reads_again_without_updating_the_follower(pair: ReplicaSet) -> None:
    pair.follow(2, 1, **WAIT)
    before = pair.partition.leader.remote_replicas[2].last_fetch_ms
    pair.world.run_for(10)
    pair.produce(b"second")
    assert not waits(pair)
    assert pair.partition.leader.remote_replicas[2].last_fetch_ms == before
    assert pair.manager.metrics.all_topics().fetch_requests == 2


def test_an_append_by_a_completed_fetch_completes_later_fetches(pair: ReplicaSet) -> None:
    order: list[str] = []

    def appends_again(_: dict[object, object]) -> None:
        pair.manager.append_records(
            100, 1, {PARTITION: batch(b"more")}, AppendOrigin.CLIENT, lambda _: None
        )
        order.append("appended")

    pair.manager.append_records(
        100, -1, {PARTITION: batch(b"second")}, AppendOrigin.CLIENT, appends_again
    )
    pair.answers.fetched.clear()
    pair.follow(2, 2, max_wait_ms=500)
    assert order == ["appended"]
    assert len(pair.answers.fetched) == 1, "its own fetch is woken by what was appended"
