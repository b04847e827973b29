"""Idle partitions, and their sets, beside a model."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.fetch_session_handler import next_epoch
from barnabas.protocol.records.topics import PartitionRecord
from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
from barnabas.replication.requests.fetch_session_cache import FetchSessionCache, SessionRequest
from barnabas.storage.results import FetchIsolation
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from unit.replication.replica_set import (
    LEADER,
    TOPIC,
    TOPIC_ID,
    ReplicaSet,
)

PARTITIONS = 3


def where(index: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC_ID, TOPIC, index)


class Follower:
    """A broker that fetches in one session, initially from the log end of all partitions."""

    def __init__(self, replicas: ReplicaSet, sessions: FetchSessionCache, broker_id: int) -> None:
        self._replicas = replicas
        self._sessions = sessions
        self.id = broker_id
        self.epoch = 100 + broker_id
        self.session_id = 0
        self.session_epoch = 0
        # Of the last fetch: the read partitions, and the partitions of each response.
        self.read: list[int] = []
        self.answers: list[dict[int, Any]] = []

    def fetch(
        self,
        asked: dict[int, FetchPartitionData] | None = None,
        forgotten: tuple[int, ...] = (),
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
    ) -> None:
        """Send the next request of the session; the first one asks for all partitions."""
        if asked is None:
            asked = {} if self.session_epoch else {each: at(0) for each in range(PARTITIONS)}
        request = SessionRequest(
            self.session_id,
            self.session_epoch,
            [(where(index), data) for index, data in asked.items()],
            [where(index) for index in forgotten],
            is_from_follower=True,
            uses_topic_ids=True,
            replica_id=self.id,
            replica_epoch=self.epoch,
        )
        context = self._sessions.open(request, lambda _: TOPIC)
        assert context.error is ErrorCode.NONE
        readable = context.partitions()
        self.read = [each.partition for each, _ in readable]
        params = FetchParams(
            17, self.id, self.epoch, max_wait_ms, 1, max_bytes, FetchIsolation.LOG_END
        )

        def answered(results: list[Any]) -> None:
            news = context.update(results)
            self.session_id = context.session_id
            self.answers.append({each.partition: result for each, result in news})

        self.session_epoch = next_epoch(self.session_epoch)
        self._replicas.manager.fetch(params, readable, answered, context.idle)


def at(offset: int, **fields: int) -> FetchPartitionData:
    return FetchPartitionData(offset, 1 << 20, log_start_offset=0, **fields)


class Scene:
    """A leader with three empty partitions, and followers whose sessions are idle."""

    def __init__(self) -> None:
        self.replicas = ReplicaSet((1, 2, 3))
        self.replicas.replay(
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=TOPIC_ID,
                    replicas=[1, 2, 3],
                    isr=[1, 2, 3],
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
        self.idle = self.replicas.manager.idle_partitions
        self.sessions = FetchSessionCache(10, 120_000, runtime.clock, runtime.rng, self.idle)

    def idle_follower(self, broker_id: int = 2) -> Follower:
        """Return a follower whose partitions are all idle, just after a sweep."""
        follower = Follower(self.replicas, self.sessions, broker_id)
        follower.fetch()
        follower.fetch()
        assert follower.read == [0, 1, 2], "the first sweep"
        follower.fetch()
        assert follower.read == []
        return follower

    def run_for(self, duration_ms: float) -> None:
        self.replicas.world.run_for(duration_ms)

    @property
    def now_ms(self) -> float:
        return self.replicas.runtime.clock.monotonic_ms()

    def replica(self, broker_id: int = 2) -> Any:
        return self.replicas.partition.leader.remote_replicas[broker_id]

    def idle_keys(self) -> set[TopicPartition]:
        return set(self.idle.sessions)
