"""A consumer's session with many partitions skips idle ones, and misses no change of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.fetch_session_handler import FINAL_EPOCH, next_epoch
from barnabas.protocol.records.topics import PartitionRecord
from barnabas.protocol.schema import ZERO_UUID
from barnabas.record.builder import BatchBuilder
from barnabas.replication.config import ReplicationConfig
from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
from barnabas.replication.requests import fetch_session_cache
from barnabas.replication.requests.fetch_session_cache import FetchSessionCache, SessionRequest
from barnabas.storage.results import AppendOrigin, FetchIsolation
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from unit.replication.replica_set import LEADER, TOPIC, TOPIC_ID, ReplicaSet, batch

PARTITIONS = 3
ALL = [0, 1, 2]


@pytest.fixture(autouse=True)
def few_partitions_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session_cache, "CHECKED_MAX", PARTITIONS - 1)


def at(offset: int = 0, **fields: int) -> FetchPartitionData:
    return FetchPartitionData(offset, 1 << 20, **fields)


class Consumer:
    """Fetches in one session of a leader with three empty partitions and a follower."""

    def __init__(self, names_topics: bool = False) -> None:
        self.replicas = ReplicaSet((1, 2))
        self.replicas.replay(
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=TOPIC_ID,
                    replicas=[1, 2],
                    isr=[1, 2],
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=LEADER,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[],
                )
                for index in range(1, PARTITIONS)
            )
        )
        runtime = self.replicas.runtime
        idle = self.replicas.manager.idle_partitions
        self.sessions = FetchSessionCache(10, 120_000, runtime.clock, runtime.rng, idle)
        self._names_topics = names_topics
        self._session_id = self._epoch = 0
        self.isolation = FetchIsolation.HIGH_WATERMARK
        # Of the last fetch: the read partitions, and the partitions of each response.
        self.read: list[int] = []
        self.answers: list[dict[int, Any]] = []

    def where(self, index: int) -> TopicIdPartition:
        return TopicIdPartition(ZERO_UUID if self._names_topics else TOPIC_ID, TOPIC, index)

    def fetch(
        self,
        asked: dict[int, FetchPartitionData] | None = None,
        forgotten: tuple[int, ...] = (),
        max_wait_ms: int = 0,
    ) -> dict[int, Any]:
        """Send the next request of the session, and return its response if it has come."""
        request = SessionRequest(
            self._session_id,
            self._epoch,
            [(self.where(index), data) for index, data in (asked or {}).items()],
            [self.where(index) for index in forgotten],
            is_from_follower=False,
            uses_topic_ids=not self._names_topics,
        )
        context = self.sessions.open(request, lambda _: TOPIC)
        assert context.error is ErrorCode.NONE
        readable = context.partitions()
        self.read = [each.partition for each, _ in readable]
        params = FetchParams(17, -1, -1, max_wait_ms, 1, 1 << 20, self.isolation)

        def on_done(results: list[Any]) -> None:
            changed = context.update(results)
            self._session_id = context.session_id
            self.answers.append({each.partition: result for each, result in changed})

        self._epoch = next_epoch(self._epoch)
        self.replicas.manager.fetch(params, readable, on_done, context.idle)
        return self.answers[-1] if self.answers else {}

    def begin(self, **fields: int) -> None:
        """Fetch all partitions, and then check that nothing is read again."""
        self.fetch({index: at(**fields) for index in ALL})
        assert self.fetch() == {}

    def end(self) -> None:
        """Close the session."""
        self._epoch = FINAL_EPOCH
        self.fetch()

    def replicate(self, index: int, offset: int) -> None:
        """Fetch as the follower, so that the high watermark moves to the offset."""
        self.replicas.follow(2, offset, where=TopicIdPartition(TOPIC_ID, TOPIC, index))

    def produce(self, index: int, records: memoryview | None = None) -> None:
        """Append one record to the leader's log."""
        entries = {TopicPartition(TOPIC, index): records or batch(b"x")}
        manager = self.replicas.manager
        manager.append_records(1_000, 1, entries, AppendOrigin.CLIENT, lambda _: None)


@pytest.fixture(params=[False, True], ids=["topic ids", "topic names"])
def consumer(request: pytest.FixtureRequest) -> Consumer:
    return Consumer(names_topics=request.param)


def test_partitions_without_changes_are_not_read(consumer: Consumer) -> None:
    consumer.begin()
    assert consumer.read == []
    topics = consumer.replicas.manager.metrics.topics
    before = topics[TOPIC].fetch_requests
    consumer.fetch()
    assert topics[TOPIC].fetch_requests == before + PARTITIONS


def test_a_session_of_few_partitions_reads_all_of_them(consumer: Consumer) -> None:
    consumer.fetch({0: at(), 1: at()})
    consumer.fetch()
    assert consumer.read == [0, 1]


def test_a_session_that_grows_skips_partitions_without_changes(consumer: Consumer) -> None:
    consumer.fetch({0: at(), 1: at()})
    assert set(consumer.fetch({2: at()})) == {2}
    consumer.fetch()
    assert consumer.read == []


def test_records_that_arrive_between_fetches_are_read(consumer: Consumer) -> None:
    consumer.begin()
    consumer.produce(1)
    consumer.replicate(1, 1)
    changed = consumer.fetch()
    assert consumer.read == [1]
    assert len(changed[1].records) > 0


def test_records_that_arrive_during_the_wait_complete_the_fetch(consumer: Consumer) -> None:
    consumer.begin()
    answers = len(consumer.answers)
    consumer.fetch(max_wait_ms=400)
    consumer.produce(1)
    assert len(consumer.answers) == answers, "not yet on the follower"
    consumer.replicate(1, 1)
    assert len(consumer.answers[answers][1].records) > 0


def test_a_partition_whose_high_watermark_lags_is_read(consumer: Consumer) -> None:
    consumer.begin()
    consumer.produce(1)
    for _ in range(2):
        assert consumer.fetch() == {}
        assert consumer.read == [1]


def test_a_partition_with_an_open_transaction_is_read(consumer: Consumer) -> None:
    """Each request of a session may have another isolation level."""
    consumer.begin()
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    builder.append(1_000, None, b"x")
    consumer.produce(1, memoryview(builder.build()))
    consumer.replicate(1, 1)
    consumer.isolation = FetchIsolation.TXN_COMMITTED
    assert consumer.fetch()[1].records == b""
    consumer.fetch({1: at(1)})
    consumer.fetch()
    assert consumer.read == [1]


def test_a_log_start_offset_moved_by_retention_is_in_the_next_response(
    consumer: Consumer,
) -> None:
    consumer.produce(1)
    consumer.replicate(1, 1)
    consumer.fetch({0: at(), 1: at(1), 2: at()})
    consumer.fetch()
    assert consumer.read == []
    log = consumer.replicas.logs.logs[TopicPartition(TOPIC, 1)]
    log.maybe_increment_log_start_offset(1, "retention")
    assert consumer.fetch()[1].log_start_offset == 1


def test_a_new_leader_epoch_is_an_error_in_the_next_response(consumer: Consumer) -> None:
    consumer.begin(current_leader_epoch=0)
    assert consumer.read == []
    consumer.replicas.change(leader=LEADER)
    assert consumer.fetch()[0].error is ErrorCode.FENCED_LEADER_EPOCH


def test_a_deleted_topic_is_an_error_during_the_wait(consumer: Consumer) -> None:
    consumer.begin()
    answers = len(consumer.answers)
    consumer.fetch(max_wait_ms=400)
    consumer.replicas.remove_topic()
    error = consumer.answers[answers][0].error
    assert error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(consumer.fetch()) == set(ALL)


def test_partitions_with_a_checked_epoch_of_the_last_record_are_read(consumer: Consumer) -> None:
    """Retention may remove the epoch."""
    consumer.produce(0)
    consumer.replicate(0, 1)
    consumer.fetch({0: at(1, last_fetched_epoch=0), 1: at(), 2: at()})
    consumer.fetch()
    assert consumer.read == [0]


def test_a_partition_that_the_request_names_or_forgets_is_no_longer_idle(
    consumer: Consumer,
) -> None:
    consumer.begin()
    consumer.fetch({1: at()}, forgotten=(2,))
    assert consumer.read == [1]
    consumer.produce(2)
    consumer.fetch()
    assert consumer.read == []


def test_a_replica_selector_looks_at_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(
        ReplicationConfig(),
        replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector",
    )
    monkeypatch.setattr("unit.replication.replica_set.ReplicationConfig", lambda: config)
    selecting = Consumer()
    selecting.begin()
    assert selecting.read == ALL


def test_a_closed_session_leaves_no_state(consumer: Consumer) -> None:
    consumer.begin()
    idle = consumer.replicas.manager.idle_partitions
    assert len(idle.sessions) == PARTITIONS
    consumer.end()
    assert not idle.sessions


def test_a_response_after_the_end_of_its_session_leaves_no_state(consumer: Consumer) -> None:
    consumer.fetch({index: at() for index in ALL})
    consumer.produce(0)
    consumer.replicate(0, 1)
    consumer.fetch()
    consumer.fetch({0: at(1)}, max_wait_ms=400)
    idle = consumer.replicas.manager.idle_partitions
    consumer.end()
    consumer.replicas.world.run_for(500)
    assert not idle.sessions
