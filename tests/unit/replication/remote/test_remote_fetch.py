"""Fetches of offsets that only the remote tier has: cases A to F, limits, errors, wide fetches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.topics import PartitionRecord
from barnabas.replication.requests import delayed_remote_fetch
from barnabas.storage.results import AppendOrigin, FetchIsolation
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import run_to_end
from unit.replication.remote.remote_fetches import (
    MAX_WAIT_MS,
    Fetches,
    offsets,
    tiered_broker,
)
from unit.replication.remote.tiered_broker import TieredBroker
from unit.replication.replica_set import LEADER, TOPIC, TOPIC_ID, batch

if TYPE_CHECKING:
    pass


@pytest.fixture
def broker() -> TieredBroker:
    return tiered_broker()


def add_partition(broker: TieredBroker, index: int, batches: int) -> None:
    """Add a partition whose records are local."""
    broker.replay(
        PartitionRecord(
            partition_id=index,
            topic_id=TOPIC_ID,
            replicas=[LEADER],
            isr=[LEADER],
            removing_replicas=[],
            adding_replicas=[],
            leader=LEADER,
            leader_epoch=0,
            partition_epoch=0,
            directories=[],
        )
    )
    for _ in range(batches):
        entries = {TopicPartition(TOPIC, index): batch(b"local")}
        broker.manager.append_records(1_000, 1, entries, AppendOrigin.CLIENT, lambda _: None)


def test_case_e_a_consumer_gets_what_only_the_tier_has(broker: TieredBroker) -> None:
    fetches = Fetches(broker)
    fetches.start((0, 2))
    assert not fetches.results, "it waits for the tier, even with max.wait.ms=0"
    assert broker.manager.waiting()["RemoteFetch"] == 1
    broker.world.run_for(MAX_WAIT_MS)
    [result] = fetches.results[0]
    assert result.error is ErrorCode.NONE
    assert offsets(result) == [2]
    assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (6, 6, 0)
    assert broker.manager.waiting()["RemoteFetch"] == 0
    counts = broker.metrics.topics[TOPIC]
    assert (counts.fetch_requests, counts.fetch_errors) == (1, 0)
    assert counts.fetch_bytes == len(result.records)


def test_a_consumer_reads_across_both_tiers(broker: TieredBroker) -> None:
    fetches, read, offset = Fetches(broker), [], 0
    while offset < 6:
        [result] = fetches.fetch((0, offset))
        read += offsets(result)
        offset = read[-1] + 1
    assert read == list(range(6))


def test_what_is_in_memory_is_returned_at_once(broker: TieredBroker) -> None:
    fetches = Fetches(broker)
    fetches.fetch((0, 2))
    fetches.start((0, 2))
    assert len(fetches.results) == 2
    assert offsets(fetches.results[1][0]) == [2]


def test_a_follower_is_told_that_the_offset_has_moved() -> None:
    broker = tiered_broker((1, 2))
    broker.follow(2, 0)
    result = broker.last_fetch()
    assert result.error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert result.log_start_offset == 0
    assert result.high_watermark >= 0
    assert result.position is None


def test_offsets_below_the_log_start_are_out_of_range(broker: TieredBroker) -> None:
    broker.log.maybe_increment_log_start_offset(3, "test")
    [result] = Fetches(broker).fetch((0, 2))
    assert result.error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_case_a_the_broker_is_no_longer_the_leader() -> None:
    broker = tiered_broker((1, 2))
    fetches = Fetches(broker)
    fetches.start((0, 0), current_leader_epoch=0)
    broker.resign()
    [result] = fetches.results[0]
    assert result.error is ErrorCode.FENCED_LEADER_EPOCH


def test_case_b_the_replica_has_moved_to_another_broker() -> None:
    broker = tiered_broker((1, 2))
    fetches = Fetches(broker)
    fetches.start((0, 0))
    broker.change(leader=2, replicas=[2, 3], isr=[2])
    assert fetches.results[0][0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_case_c_the_topic_is_deleted(broker: TieredBroker) -> None:
    fetches = Fetches(broker)
    fetches.start((0, 0))
    broker.remove_topic()
    assert fetches.results[0][0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_case_d_the_directory_is_offline(broker: TieredBroker) -> None:
    fetches = Fetches(broker)
    fetches.start((0, 0))
    broker.manager.on_directory_failed("/data")
    broker.world.run_for(2)
    assert fetches.results[0][0].error is ErrorCode.KAFKA_STORAGE_ERROR


def test_case_f_a_slow_store_costs_an_empty_response_and_the_next_fetch_has_the_records(
    broker: TieredBroker,
) -> None:
    broker.runtime.worker_pool.delay_max_ms = 2_000.0
    broker.reads.limits.fetch_max_wait_ms = 100
    fetches = Fetches(broker)
    fetches.start((0, 2))
    broker.world.run_for(110)
    [result] = fetches.results[0]
    assert (result.error, len(result.records)) == (ErrorCode.NONE, 0)
    assert result.high_watermark == 6
    assert broker.metrics.remote_fetch_expires == 1
    for _ in range(10):
        broker.world.run_for(5_000)
        [result] = fetches.fetch((0, 2))
        if len(result.records):
            break
    assert offsets(result) == [2], "the loads that run fill the memory"


def test_a_client_that_is_gone_gets_nothing(broker: TieredBroker) -> None:
    fetches = Fetches(broker)
    fetches.start((0, 2)).cancel()
    broker.world.run_for(MAX_WAIT_MS)
    assert not fetches.results
    assert broker.manager.waiting()["RemoteFetch"] == 0


@pytest.mark.parametrize(
    ("error", "damage"),
    [
        (ErrorCode.UNKNOWN_SERVER_ERROR, "lost"),
        (ErrorCode.CORRUPT_MESSAGE, "flipped"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "unavailable"),
    ],
)
def test_failures_of_the_store_are_reported_for_the_partition(
    broker: TieredBroker, error: ErrorCode, damage: str
) -> None:
    assert broker.store is not None
    segment = broker.remote.segments()[2]
    if damage == "lost":
        broker.store.lose(segment)
    elif damage == "flipped":
        path = broker.store._path(segment) + ".log"
        file = broker.store.disk.open(path)
        file.write_at(b"damage", segment.size - 6)
    else:
        broker.store.faults.unavailable = 1.0
    [result] = Fetches(broker).fetch((0, 2))
    assert result.error is error
    assert result.high_watermark == -1
    assert broker.metrics.topics[TOPIC].fetch_errors == 1
    broker.store.faults.unavailable = 0.0
    [other] = Fetches(broker).fetch((0, 3))
    assert offsets(other) == [3]


def test_metadata_that_is_not_ready_is_reported_at_once(broker: TieredBroker) -> None:
    broker.metadata.is_ready = False
    fetches = Fetches(broker)
    fetches.start((0, 2))
    assert fetches.results[0][0].error is ErrorCode.REPLICA_NOT_AVAILABLE


def test_an_exceeded_quota_returns_nothing_and_loads_nothing(broker: TieredBroker) -> None:
    fetches = Fetches(broker)
    fetches.fetch((0, 2))
    broker.reads._quota.bytes_per_second = 1
    fetches.start((0, 3))
    assert len(fetches.results[1][0].records) == 0
    assert fetches.results[1][0].error is ErrorCode.NONE
    fetches.start((0, 2))
    assert offsets(fetches.results[2][0]) == [2], "what is in memory costs nothing"
    fetches.start((0, 3), max_wait_ms=300)
    assert len(fetches.results) == 3
    broker.world.run_for(301)
    assert len(fetches.results) == 4


def test_the_other_partitions_of_a_fetch_wait_with_the_tier(broker: TieredBroker) -> None:
    add_partition(broker, 1, batches=1)
    fetches = Fetches(broker)
    fetches.start((1, 0), (0, 2), (7, 0))
    assert not fetches.results
    broker.world.run_for(MAX_WAIT_MS)
    local, remote, unknown = fetches.results[0]
    assert offsets(local) == [0]
    assert offsets(remote) == [2]
    assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_remote_partition_counts_with_its_limit(broker: TieredBroker) -> None:
    add_partition(broker, 1, batches=1)
    fetches = Fetches(broker)
    remote, local = fetches.fetch((0, 2), (1, 0), max_bytes=500, max_response_bytes=500)
    assert offsets(remote) == [2]
    assert (local.error, len(local.records)) == (ErrorCode.NONE, 0)
    local, remote = fetches.fetch((1, 0), (0, 3), max_bytes=10)
    assert offsets(local) == [0], "the first batch is returned whole"
    assert (remote.error, len(remote.records)) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("max_bytes", [0, -1])
def test_a_partition_without_a_limit_gets_nothing(broker: TieredBroker, max_bytes: int) -> None:
    fetches = Fetches(broker)
    fetches.start((0, 2), max_bytes=max_bytes)
    assert len(fetches.results) == 1
    result = fetches.results[0][0]
    assert (result.error, len(result.records)) == (ErrorCode.NONE, 0)


def test_a_wide_fetch_waits_for_the_tier_too(broker: TieredBroker) -> None:
    add_partition(broker, 1, batches=1)
    fetches = Fetches(broker)
    operation = fetches.start((1, 0), (0, 2), max_wait_ms=10_000, run=run_to_end)
    assert not fetches.results
    assert operation is not None
    broker.world.run_for(MAX_WAIT_MS)
    local, remote = fetches.results[0]
    assert offsets(local) == [0]
    assert offsets(remote) == [2]


def test_a_wide_fetch_of_a_client_that_is_gone_ends(broker: TieredBroker) -> None:
    fetches = Fetches(broker)
    fetches.start((0, 2), run=run_to_end).cancel()
    broker.world.run_for(MAX_WAIT_MS)
    assert not fetches.results
    assert broker.manager.waiting()["RemoteFetch"] == 0


def test_few_partitions_of_a_fetch_load_at_the_same_time(
    broker: TieredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed_remote_fetch, "_LOADS_AT_ONCE", 1)
    fetches = Fetches(broker)
    results = fetches.fetch((0, 0), (0, 1), (0, 2))
    assert [offsets(each) for each in results] == [[0], [1], [2]]


def test_fetches_that_wait_for_the_tier_are_completed_before_the_broker_stops(
    broker: TieredBroker,
) -> None:
    fetches = Fetches(broker)
    fetches.start((0, 2))
    broker.manager.complete_delayed_fetches()
    assert len(fetches.results) == 1
    assert fetches.results[0][0].error is ErrorCode.NONE


def test_a_committed_read_names_no_transactions_if_there_are_none(broker: TieredBroker) -> None:
    [result] = Fetches(broker).fetch((0, 2), isolation=FetchIsolation.TXN_COMMITTED)
    assert result.aborted_transactions == []


def test_a_completed_fetch_keeps_no_memory(broker: TieredBroker) -> None:
    fetches = Fetches(broker)
    operation = fetches.start((0, 2))
    broker.world.run_for(MAX_WAIT_MS)
    assert operation.is_completed
    segment = broker.remote.segments()[2]
    assert broker.reads._reader.ranges.find(segment.id, 0, 1).is_lent
    fetches.results.clear()
    assert not broker.reads._reader.ranges.find(segment.id, 0, 1).is_lent
