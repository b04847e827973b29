"""A new coordinator whose high watermark is below the end of the log that it has loaded.

The records above the high watermark may be committed, and responses may depend on them. The new
coordinator must not make decisions without them.
"""

from __future__ import annotations

import pytest

from barnabas.coordinator.transaction.decisions import EndRequest, Initialization
from barnabas.coordinator.transaction.transaction_coordinator import TRANSACTION_TOPIC
from barnabas.coordinator.transaction.transaction_metadata import (
    Producer,
    TransactionMetadata,
    TransactionState,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.topics import PartitionChangeRecord
from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
from barnabas.storage.results import FetchIsolation
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from unit.coordinator.transaction.transaction_world import CONFIG, ID, P0, P1, World
from unit.replication.replica_set import LEADER

FOLLOWER = 2
STATE_PARTITION = TopicPartition(TRANSACTION_TOPIC, 0)
TIMEOUT_MS = 3_000


class ReplicatedWorld(World):
    """A coordinator with a follower that replicates on request."""

    def __init__(self) -> None:
        super().__init__(CONFIG, (LEADER, FOLLOWER))
        self.results: list[object] = []

    @property
    def log_end_offset(self) -> int:
        return self.replicas.logs.logs[STATE_PARTITION].log_end_offset

    def follow(self) -> None:
        """Make the follower fetch, and run the pending callbacks."""
        self.fetch_as_follower()
        self.run_for(1)

    def fetch_as_follower(self) -> None:
        """Fetch: the follower then has all records, and the high watermark follows."""
        params = FetchParams(17, FOLLOWER, 102, 0, 1, 1 << 20, FetchIsolation.LOG_END)
        where = TopicIdPartition(b"transactions-id.", *STATE_PARTITION)
        for offset in (max(0, self.log_end_offset - 1), self.log_end_offset):
            data = FetchPartitionData(offset, 1 << 20)
            self.replicas.manager.fetch(params, [(where, data)], lambda _: None)

    def begin_initialization(self) -> None:
        request = Initialization(ID, TIMEOUT_MS, Producer())
        self.coordinator.initialize(request, self.results.append)

    def open_transaction(self) -> Producer:
        """Return a producer whose transaction is known to be ongoing."""
        self.begin_initialization()
        self.follow()
        found = self.results.pop()
        assert isinstance(found, TransactionMetadata)
        producer = Producer(found.producer_id, found.producer_epoch)
        self.add_partitions(producer)
        self.follow()
        assert self.results.pop() is ErrorCode.NONE
        return producer

    def add_partitions(self, producer: Producer) -> None:
        self.coordinator.add_partitions(ID, producer, frozenset({P0, P1}), 2, self.results.append)


@pytest.fixture
def world() -> ReplicatedWorld:
    return ReplicatedWorld()


def test_a_transaction_above_the_high_watermark_is_not_lost(world: ReplicatedWorld) -> None:
    world.begin_initialization()
    world.follow()
    found = world.results.pop()
    assert isinstance(found, TransactionMetadata)
    world.add_partitions(Producer(found.producer_id, found.producer_epoch))
    world.start(1)

    world.begin_initialization()
    assert world.results.pop() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.coordinator.runtime.is_loading

    # The request is the first one after the commit. It aborts the open transaction.
    world.follow()
    world.begin_initialization()
    world.follow()
    assert world.results.pop() is ErrorCode.CONCURRENT_TRANSACTIONS
    markers = world.markers.write()
    assert not markers.is_commit
    assert markers.partitions == (P0, P1)


def test_markers_above_the_high_watermark_are_sent_without_another_request(
    world: ReplicatedWorld,
) -> None:
    producer = world.open_transaction()
    world.coordinator.end(EndRequest(ID, producer, True, 2), world.results.append)
    world.start(1)
    assert not world.markers.sent

    world.fetch_as_follower()
    # The fetch itself starts the coordinator: no time has passed.
    assert not world.coordinator.runtime.is_loading
    assert world.markers.write().is_commit


def test_a_coordinator_that_waits_for_a_commit_has_no_timer(world: ReplicatedWorld) -> None:
    producer = world.open_transaction()
    world.coordinator.end(EndRequest(ID, producer, True, 2), world.results.append)
    world.coordinator.runtime.shutdown()
    before = world.replicas.wheel.waiting_count
    world.start(1)
    assert world.coordinator.runtime.is_loading
    assert world.replicas.wheel.waiting_count == before


def test_a_decision_whose_write_timed_out_is_applied_at_its_commit(world: ReplicatedWorld) -> None:
    producer = world.open_transaction()
    world.coordinator.end(EndRequest(ID, producer, True, 2), world.results.append)
    world.run_for(6_000)
    assert world.results.pop() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not world.markers.sent

    world.fetch_as_follower()
    assert world.markers.write().is_commit


def test_records_of_another_leader_commit_nothing_here(world: ReplicatedWorld) -> None:
    """The next leader has replaced the decision by a record of its own at the same offset."""
    producer = world.open_transaction()
    decided_at = world.log_end_offset
    world.coordinator.end(EndRequest(ID, producer, True, 2), world.results.append)
    world.replicas.replay(
        PartitionChangeRecord(partition_id=0, topic_id=b"transactions-id.", leader=FOLLOWER)
    )
    world.replicas.logs.logs[STATE_PARTITION].update_high_watermark(decided_at + 1)
    world.replicas.manager.wake(STATE_PARTITION)
    assert world.state() is TransactionState.ONGOING
    assert not world.markers.sent


def test_no_timeout_aborts_before_the_loaded_records_are_committed(
    world: ReplicatedWorld,
) -> None:
    producer = world.open_transaction()
    world.coordinator.end(EndRequest(ID, producer, True, 2), world.results.append)
    end = world.log_end_offset
    world.start(1)
    world.run_for(3 * TIMEOUT_MS)
    assert world.log_end_offset == end

    world.follow()
    world.run_for(100)
    assert world.state() is TransactionState.PREPARE_COMMIT
    assert world.markers.write().is_commit
    assert not world.markers.sent


def test_a_coordinator_that_resigns_before_the_commit_starts_nothing(
    world: ReplicatedWorld,
) -> None:
    producer = world.open_transaction()
    world.coordinator.end(EndRequest(ID, producer, True, 2), world.results.append)
    world.start(1)
    world.coordinator.runtime.on_resigned(0)
    world.follow()
    world.run_for(3 * TIMEOUT_MS)
    assert not world.markers.sent
