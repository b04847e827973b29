"""A broker with partitions on a simulated disk, and fake followers that fetch from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.metadata.broker_registration import BrokerRegistration
from barnabas.metadata.image import ClusterDelta, ClusterImage, Provenance
from barnabas.protocol.records.topics import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas.record.builder import BatchBuilder
from barnabas.replication.config import ReplicationConfig
from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
from barnabas.replication.replica_manager import ReplicaManager, ReplicationDependencies
from barnabas.replication.replica_metrics import ReplicaMetrics
from barnabas.sim.world import sim_runtime
from barnabas.storage.config import LogConfig
from barnabas.storage.log.log import Log
from barnabas.storage.log_dependencies import LogDependencies, LogOpening
from barnabas.storage.results import AppendOrigin, FetchIsolation
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from barnabas.waiting.timing_wheel import TimingWheel

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.partition.isr import (
        AlterPartitionProposal,
        AlterPartitionResult,
    )
    from barnabas.replication.partition.results import FetchResult, ProduceResult

TOPIC = "flights"
TOPIC_ID = b"flights-topic-id"
PARTITION = TopicPartition(TOPIC, 0)
WHERE = TopicIdPartition(TOPIC_ID, TOPIC, 0)
LEADER = 1


class Logs:
    """A log store that keeps every log in one directory."""

    def __init__(self, log_dependencies: LogDependencies) -> None:
        self.log_dependencies = log_dependencies
        self.logs: dict[TopicPartition, Log] = {}
        self.checkpoints: list[dict[TopicPartition, int]] = []
        self.deleted: list[TopicPartition] = []
        # The exception that every operation raises, by partition or topic.
        self.broken: dict[TopicPartition | str, Exception] = {}

    def _check(self, key: TopicPartition | str) -> None:
        if key in self.broken:
            raise self.broken[key]

    def get_or_create(
        self,
        partition: TopicPartition,
        topic_id: bytes | None,
        config: LogConfig,
        directory_id: bytes | None = None,
    ) -> Log:
        self._check(partition)
        if partition not in self.logs:
            opening = LogOpening(partition, topic_id)
            path = f"/data/{partition.directory_name}"
            self.logs[partition] = Log.open(path, config, self.log_dependencies, opening)
        elif topic_id is not None:
            self.logs[partition].identity.assign_topic_id(topic_id)
        return self.logs[partition]

    def delete_async(self, partition: TopicPartition) -> bool:
        self._check(partition)
        self.deleted.append(partition)
        log = self.logs.pop(partition, None)
        if log is not None:
            log.rename_to_delete()
        return log is not None

    def update_config(self, topic: str, config: LogConfig) -> None:
        self._check(topic)
        for partition, log in self.logs.items():
            if partition.topic == topic:
                log.update_config(config)

    def truncate_to(self, partition: TopicPartition, offset: int) -> bool:
        return self.logs[partition].truncate_to(offset)

    def restart_log(self, partition: TopicPartition, restart: Callable[[Log], None]) -> None:
        restart(self.logs[partition])

    def checkpoint_high_watermarks(self, on_done: Callable[[], None] = lambda: None) -> None:
        self.checkpoints.append({tp: log.high_watermark for tp, log in self.logs.items()})
        on_done()


class Sender:
    """Stores proposals, so that the test can answer them."""

    def __init__(self) -> None:
        self.sent: list[tuple[AlterPartitionProposal, Callable[[AlterPartitionResult], None]]] = []

    def submit(
        self,
        proposal: AlterPartitionProposal,
        on_done: Callable[[AlterPartitionResult], None],
    ) -> None:
        self.sent.append((proposal, on_done))


@dataclass
class Answers:
    """The responses, in order."""

    produced: list[dict[TopicPartition, ProduceResult]] = field(default_factory=list)
    fetched: list[list[tuple[TopicIdPartition, FetchResult]]] = field(default_factory=list)


def batch(*values: bytes, timestamp: int = 1_000) -> memoryview:
    builder = BatchBuilder()
    for index, value in enumerate(values):
        builder.append(timestamp + index, None, value)
    return memoryview(builder.build())


def registered(broker_id: int, epoch: int) -> BrokerRegistration:
    return BrokerRegistration(broker_id, epoch, bytes(16), {}, {}, fenced=False)


class ReplicaSet:
    """Broker 1 with its manager; brokers 2, 3… exist only in metadata and in calls of the test."""

    def __init__(self, replicas: tuple[int, ...] = (1,), **log_config: object) -> None:
        self.world, self.runtime = sim_runtime(1)
        log_dependencies = LogDependencies(
            disk=self.runtime.disk,
            clock=self.runtime.clock,
            executor=self.runtime.executor,
            timer=self.runtime.timer,
            rng=self.runtime.rng,
        )
        self.log_config = replace(LogConfig(), **log_config)
        self.logs = Logs(log_dependencies)
        self.sender = Sender()
        self.answers = Answers()
        self.wheel = TimingWheel(self.runtime.clock, self.runtime.timer)
        self.replicas = replicas
        self.manager = self.new_manager()
        brokers = {each: registered(each, 100 + each) for each in (1, 2, 3, 4)}
        self.image = ClusterImage(brokers=brokers)
        self.create_topic(TOPIC_ID)

    def new_manager(self) -> ReplicaManager:
        parts = ReplicationDependencies(
            self.wheel,
            self.runtime.clock,
            self.sender,
            ReplicaMetrics(),
            lambda _topic, _own: self.log_config,
        )
        return ReplicaManager(LEADER, ReplicationConfig(), self.logs, parts)

    def restart(self) -> None:
        """Start the broker with the metadata that it has, on the logs that there are."""
        self.manager = self.new_manager()
        delta = ClusterDelta(ClusterImage())
        for record, _ in self.image.to_records():
            delta.replay(record)
        self.changes = self.manager.apply_delta(delta, delta.apply(Provenance()))

    def create_topic(self, topic_id: bytes) -> None:
        self.replay(
            TopicRecord(name=TOPIC, topic_id=topic_id),
            PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=list(self.replicas),
                isr=list(self.replicas),
                removing_replicas=[],
                adding_replicas=[],
                leader=LEADER,
                leader_epoch=0,
                partition_epoch=0,
                directories=[],
            ),
        )

    def replay(self, *records: object) -> None:
        delta = ClusterDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(Provenance())
        self.changes = self.manager.apply_delta(delta, self.image)

    def change(self, **fields: object) -> None:
        self.replay(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **fields))

    def remove_topic(self) -> None:
        self.replay(RemoveTopicRecord(topic_id=TOPIC_ID))

    @property
    def partition(self):
        return self.manager.partition(PARTITION)

    @property
    def log(self) -> Log:
        return self.logs.logs[PARTITION]

    def produce(self, *values: bytes, acks: int = 1, timeout_ms: int = 1_000) -> None:
        self.manager.append_records(
            timeout_ms,
            acks,
            {PARTITION: batch(*values)},
            AppendOrigin.CLIENT,
            self.answers.produced.append,
        )

    def consume(self, offset: int, **options) -> None:
        self.fetch(-1, offset, **options)

    def follow(self, broker_id: int, offset: int, **options) -> None:
        self.fetch(broker_id, offset, **options)

    def fetch(self, replica_id: int, offset: int, **options) -> None:
        isolation = FetchIsolation.LOG_END if replica_id >= 0 else FetchIsolation.HIGH_WATERMARK
        params = FetchParams(
            version=options.pop("version", 17),
            replica_id=replica_id,
            replica_epoch=options.pop("replica_epoch", 100 + replica_id),
            max_wait_ms=options.pop("max_wait_ms", 0),
            min_bytes=options.pop("min_bytes", 1),
            max_bytes=options.pop("max_response_bytes", 1 << 20),
            isolation=isolation,
        )
        where = options.pop("where", WHERE)
        data = FetchPartitionData(offset, options.pop("max_bytes", 1 << 20), **options)
        self.manager.fetch(params, [(where, data)], self.answers.fetched.append)

    def last_fetch(self) -> FetchResult:
        return self.answers.fetched[-1][0][1]

    def last_produce(self) -> ProduceResult:
        return self.answers.produced[-1][PARTITION]
