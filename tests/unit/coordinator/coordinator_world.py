"""A group coordinator over a real replica manager on a simulated disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.coordinator.group.group_config import GroupCoordinatorConfig, GroupSettings
from barnabas.coordinator.group.group_coordinator import (
    OFFSETS_TOPIC,
    GroupCoordinator,
    ShareServices,
)
from barnabas.coordinator.group.requests.offset_requests import InTransaction
from barnabas.coordinator.runtime.coordinator_record import TransactionalProducer, TransactionEnding
from barnabas.coordinator.runtime.runtime_dependencies import RuntimeDependencies
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from barnabas.protocol.records.topics import PartitionChangeRecord, PartitionRecord, TopicRecord
from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
from barnabas.storage.results import FetchIsolation
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from steps import finish
from unit.coordinator.share_store import LatestOffsets, ShareStore
from unit.replication.replica_set import LEADER, ReplicaSet

OFFSETS_ID = b"offsets-topic-id"
STATE = TopicPartition(OFFSETS_TOPIC, 0)


class Topics:
    """Topic `flights` with two partitions, through the image's names and ids."""

    def __init__(self, replicas: ReplicaSet) -> None:
        self.replicas = replicas

    def topic_id(self, name: str) -> bytes | None:
        topic = self.replicas.image.topics.by_name(name)
        return None if topic is None else topic.id

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.replicas.image.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def has_partition(self, name: str, partition: int) -> bool:
        return self.replicas.image.topics.partition(name, partition) is not None

    def partition_count(self, name: str) -> int:
        topic = self.replicas.image.topics.by_name(name)
        return 0 if topic is None else len(topic.partitions)

    def partition_racks(self, name: str):
        return iter([[]] * self.partition_count(name))

    def topic_names(self):
        return self.replicas.image.topics.names()

    def version(self) -> int:
        # The replica set's image has no offsets. Its topics only grow in number here.
        return len(self.replicas.image.topics)


class CoordinatorWorld:
    """One broker whose `__consumer_offsets` has one partition."""

    # Without it, each write is appended at once.
    shares_batches = False

    def __init__(self, replicas: tuple[int, ...] = (1,), **config: str | int) -> None:
        self.replicas = ReplicaSet()
        self.replicas.replay(
            TopicRecord(name=OFFSETS_TOPIC, topic_id=OFFSETS_ID),
            PartitionRecord(
                partition_id=0,
                topic_id=OFFSETS_ID,
                replicas=list(replicas),
                isr=list(replicas),
                removing_replicas=[],
                adding_replicas=[],
                leader=LEADER,
                leader_epoch=0,
                partition_epoch=0,
                directories=[],
            ),
        )
        self.config = GroupCoordinatorConfig(**config)
        self.responses: list[OffsetCommitResponse] = []
        # The share coordinators and the latest offsets, which outlive the group coordinator.
        self.share_store = ShareStore()
        self.latest_offsets = LatestOffsets()
        self.coordinator = self._make_coordinator()

    def new_coordinator(self) -> GroupCoordinator:
        """Stop the coordinator, and return one with an empty memory."""
        self.coordinator.runtime.shutdown()
        return self._make_coordinator()

    def _make_coordinator(self, settings: GroupSettings | None = None) -> GroupCoordinator:
        runtime = self.replicas.runtime
        topics = Topics(self.replicas)
        dependencies = RuntimeDependencies(
            log=self.replicas.manager,
            clock=runtime.clock,
            timer=runtime.timer,
            wheel=self.replicas.wheel,
            executor=runtime.executor,
            shares_batches=self.shares_batches,
        )
        services = ShareServices(self.share_store, self.latest_offsets)
        coordinator = GroupCoordinator(
            self.config, dependencies, topics, runtime.rng, services, settings
        )
        coordinator.runtime.partition_count = topics.partition_count(OFFSETS_TOPIC)
        return coordinator

    def load(self, leader_epoch: int = 0) -> None:
        self.coordinator.runtime.on_elected(0, leader_epoch)
        self.replicas.world.run_for(50)

    def resign(self) -> None:
        self.replicas.replay(PartitionChangeRecord(partition_id=0, topic_id=OFFSETS_ID, leader=2))

    def follow(self, offset: int) -> None:
        """Make the other replica fetch from `offset`; it has all records below this offset."""
        params = FetchParams(17, 2, 102, 0, 1, 1 << 20, FetchIsolation.LOG_END)
        where = TopicIdPartition(OFFSETS_ID, *STATE)
        data = FetchPartitionData(offset, 1 << 20)
        self.replicas.manager.fetch(params, [(where, data)], lambda _: None)

    @property
    def log(self):
        return self.replicas.logs.logs[STATE]

    def commit(self, offset: int = 5, version: int = 8, **options) -> int | None:
        partition = OffsetCommitRequestPartition(
            partition_index=options.pop("partition", 0),
            committed_offset=offset,
            committed_leader_epoch=options.pop("leader_epoch", -1),
            committed_metadata=options.pop("metadata", "m"),
        )
        topic = OffsetCommitRequestTopic(
            name=options.pop("topic", "flights") if version < 10 else "",
            topic_id=options.pop("topic_id", bytes(16)),
            partitions=[partition],
        )
        request = OffsetCommitRequest(
            group_id=options.pop("group", "g"),
            generation_id_or_member_epoch=options.pop("generation", -1),
            member_id=options.pop("member", ""),
            group_instance_id=options.pop("instance", None),
            retention_time_ms=options.pop("retention_ms", -1),
            topics=[topic],
        )
        producer = options.pop("producer", None)
        assert not options, options
        transaction = None
        if producer is not None:
            transaction = InTransaction(
                TransactionalProducer(producer, 0), lambda on_done: on_done(ErrorCode.NONE)
            )
        before = len(self.responses)
        commit = self.coordinator.offsets.commit
        finish(commit(request, version, self.responses.append, transaction))
        return self.error() if len(self.responses) > before else None

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        """Write the marker of a producer's transaction."""
        errors: list[ErrorCode] = []
        ending = TransactionEnding(producer, 0, 0, commit, 1)
        self.coordinator.runtime.complete_transaction(0, ending, errors.append)
        assert errors == [ErrorCode.NONE]

    def error(self) -> int:
        return self.responses[-1].topics[0].partitions[0].error_code

    def committed(self, partition: int = 0, group: str = "g") -> tuple[int, int, str | None, int]:
        topic = OffsetFetchRequestTopic(name="flights", partition_indexes=[partition])
        request = OffsetFetchRequest(group_id=group, topics=[topic])
        response = finish(self.coordinator.offsets.fetch(request, 5))
        if response.error_code:
            return (response.error_code, -1, None, -1)
        (found,) = response.topics[0].partitions
        return (
            found.error_code,
            found.committed_offset,
            found.metadata,
            found.committed_leader_epoch,
        )


def counted_lookups(patch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that gets the key of each lookup of a topic from now on."""
    lookups: list[object] = []
    for name in ("topic_id", "topic_name", "partition_count"):
        real = getattr(Topics, name)

        def look_up(topics: Topics, key: object, real: Callable[..., object] = real) -> object:
            lookups.append(key)
            return real(topics, key)

        patch.setattr(Topics, name, look_up)
    return lookups
