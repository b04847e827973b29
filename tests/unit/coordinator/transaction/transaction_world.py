"""A transaction coordinator over a simulated log, with virtual time."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.coordinator.runtime.runtime_dependencies import RuntimeDependencies
from barnabas.coordinator.transaction.config import TransactionConfig
from barnabas.coordinator.transaction.decisions import EndRequest, Initialization
from barnabas.coordinator.transaction.transaction_coordinator import (
    TRANSACTION_TOPIC,
    TransactionCoordinator,
)
from barnabas.coordinator.transaction.transaction_metadata import (
    Markers,
    Producer,
    TransactionMetadata,
    TransactionState,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.topics import PartitionRecord, TopicRecord
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from unit.replication.replica_set import LEADER, ReplicaSet

ID, TIMEOUT_MS = "t", 30_000

WHERE = TopicIdPartition(b"transactions-id.", TRANSACTION_TOPIC, 0)

P0, P1 = TopicPartition("a", 0), TopicPartition("a", 1)

CONFIG = TransactionConfig(
    transactional_id_expiration_ms=100_000,
    transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000,
    transaction_remove_expired_transaction_cleanup_interval_ms=5_000,
)


class HeldMarkers:
    """A `MarkerSender` that writes markers on request."""

    def __init__(self) -> None:
        # Markers, with the functions to call for a written partition and at the end.
        self.sent: list[
            tuple[Markers, Callable[[TopicPartition], None], Callable[[ErrorCode], None]]
        ] = []
        self.forgotten: list[int] = []

    def send(
        self,
        markers: Markers,
        on_written: Callable[[TopicPartition], None],
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        self.sent.append((markers, on_written, on_done))

    def forget(self, coordinator_partition: int) -> None:
        self.forgotten.append(coordinator_partition)

    def write(self) -> Markers:
        """Write the oldest markers."""
        markers, _, on_done = self.sent.pop(0)
        on_done(ErrorCode.NONE)
        return markers


class World:
    """One broker that leads the only partition of `__transaction_state`."""

    def __init__(
        self, config: TransactionConfig = CONFIG, replicas: tuple[int, ...] = (LEADER,)
    ) -> None:
        self.config = config
        self.replicas = ReplicaSet()
        self.replicas.replay(
            TopicRecord(name=TRANSACTION_TOPIC, topic_id=WHERE.topic_id),
            PartitionRecord(
                partition_id=0,
                topic_id=WHERE.topic_id,
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
        self.version = 2
        self.next_id = 100
        self._launch(0)

    def start(self, leader_epoch: int) -> None:
        """Stop; begin with an empty memory, as another broker does, and load the log."""
        self.coordinator.runtime.shutdown()
        self._launch(leader_epoch)

    def _launch(self, leader_epoch: int) -> None:
        runtime = self.replicas.runtime
        self.markers = HeldMarkers()
        dependencies = RuntimeDependencies(
            log=self.replicas.manager,
            clock=runtime.clock,
            timer=runtime.timer,
            wheel=self.replicas.wheel,
            executor=runtime.executor,
        )
        self.coordinator = TransactionCoordinator(
            self.config, dependencies, lambda: self.version, self._next_id, self.markers
        )
        self.coordinator.runtime.partition_count = 1
        self.coordinator.runtime.on_elected(0, leader_epoch)
        self.run_for(50)

    def follow(self, offset: int) -> None:
        """Make the other replica fetch from `offset`; it has all records below this offset."""
        self.replicas.follow(2, offset, where=WHERE)

    def _next_id(self, on_id: Callable[[int, ErrorCode], None]) -> None:
        self.next_id += 1
        on_id(self.next_id, ErrorCode.NONE)

    def run_for(self, ms: float) -> None:
        self.replicas.world.run_for(ms)

    def initialize(
        self,
        timeout_ms: int = TIMEOUT_MS,
        *,
        expected: Producer = Producer(),  # noqa: B008 - frozen
        two_phases: bool = False,
        keeps: bool = False,
    ) -> TransactionMetadata | ErrorCode:
        found: list[TransactionMetadata | ErrorCode] = []
        request = Initialization(
            ID, timeout_ms, expected, has_two_phases=two_phases, keeps_prepared=keeps
        )
        self.coordinator.initialize(request, found.append)
        return found[0]

    def producer(self) -> Producer:
        """Return a new producer of the transactional id."""
        found = self.initialize()
        assert isinstance(found, TransactionMetadata)
        return Producer(found.producer_id, found.producer_epoch)

    def add(self, producer: Producer, *partitions: TopicPartition) -> ErrorCode:
        found: list[ErrorCode] = []
        self.coordinator.add_partitions(
            ID, producer, frozenset(partitions), self.version, found.append
        )
        return found[0]

    def end(self, producer: Producer, is_commit: bool) -> TransactionMetadata | ErrorCode:
        found: list[TransactionMetadata | ErrorCode] = []
        client_version = 2 if self.version == 2 else 0
        self.coordinator.end(EndRequest(ID, producer, is_commit, client_version), found.append)
        return found[0]

    def state(self) -> TransactionState:
        found = self.coordinator.describe(ID)
        assert isinstance(found, TransactionMetadata)
        return found.state

    def partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions that DescribeTransactions shows."""
        found = self.coordinator.describe(ID)
        assert isinstance(found, TransactionMetadata)
        return found.partitions
