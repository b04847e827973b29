"""Several brokers' replica managers in one simulated world, and a controller outside of it.

Brokers fetch from each other over the simulated network, with the real handlers of a broker. The
log manager stores the logs on simulated disks. The controller applies Kafka's ISR rules; its
decisions reach each broker in order, after a separate delay.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from barnabas.metadata.image import ClusterDelta, ClusterImage, Provenance
from barnabas.network.channel import ChannelDependencies
from barnabas.network.connection import Connection
from barnabas.network.connection_limits import ConnectionDependencies, ConnectionLimits
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.nodes import (
    BrokerEndpoint,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
)
from barnabas.protocol.records.topics import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.reader import read_batches
from barnabas.replication.config import FETCH_SESSION_EVICTION_MS, ReplicationConfig
from barnabas.replication.fetcher.leader_channels import PeerChannels
from barnabas.replication.partition.isr import AlterPartitionResult
from barnabas.replication.replica_manager import ReplicaManager, ReplicationDependencies
from barnabas.replication.replica_metrics import ReplicaMetrics
from barnabas.replication.requests.fetch_session_cache import FetchSessionCache
from barnabas.runtime.disk import FileSlice
from barnabas.server.cluster.cluster_view import Backlog, ClusterView
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.conversion.conversion_queue import ConversionQueue
from barnabas.server.dispatch.client_software import MissingFeatures
from barnabas.server.dispatch.dispatcher import Dispatcher
from barnabas.server.dispatch.request import RequestDependencies
from barnabas.server.dispatch.request_statistics import RequestStatistics
from barnabas.server.dispatch.served_apis import served_apis
from barnabas.server.dispatch.slices import SliceQueue
from barnabas.server.handlers.dependencies import HandlerTable
from barnabas.server.quotas.client_quotas import ClientQuotas
from barnabas.sim.world import SimWorld
from barnabas.storage.config import LogConfig, StorageConfig, log_config
from barnabas.storage.files.log_directory import LogDirectory
from barnabas.storage.log_dependencies import LogDependencies
from barnabas.storage.manager.log_manager import LogManager
from barnabas.storage.results import AppendOrigin, FetchIsolation
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.timing_wheel import TimingWheel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.replication.partition.isr import AlterPartitionProposal
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.storage.log.log import Log

TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, 0)
LISTENER = "PLAINTEXT"
PORT = 9092
DATA = "/data"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
NO_LEADER = -1
_UNREACHABLE_MS = 50.0


def topic_id_of(topic: str) -> bytes:
    return topic.encode().ljust(16, b".")[:16]


def batch(*values: bytes, timestamp: int = 1_000) -> memoryview:
    builder = BatchBuilder()
    for index, value in enumerate(values):
        builder.append(timestamp + index, None, value)
    return memoryview(builder.build())


def fail_test(error: BaseException) -> None:
    raise error


class Controller:
    """Decides at once and informs brokers later. Its link to a broker may be cut."""

    def __init__(self, cluster: ReplicatedCluster) -> None:
        self._cluster = cluster
        self.image = ClusterImage()
        self._next_epoch = 100
        # Brokers without a link to the controller: they get no metadata, and their proposals fail.
        self.unreachable: set[int] = set()
        # Whether decisions are held until `release`.
        self.proposals: list[AlterPartitionProposal] = []
        self.answers: list[ErrorCode] = []
        # Replacements for the next responses.
        self.refusals: list[ErrorCode] = []

    def write(self, *records: object) -> None:
        delta = ClusterDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(Provenance())
        for node in self._cluster.nodes.values():
            node.learn_later(list(records))

    def register(self, node_id: int) -> int:
        self._next_epoch += 1
        rack = self._cluster.racks.get(node_id)
        self.write(
            RegisterBrokerRecord(
                broker_id=node_id,
                incarnation_id=bytes(16),
                broker_epoch=self._next_epoch,
                end_points=[
                    BrokerEndpoint(
                        name=LISTENER, host=f"b{node_id}", port=PORT, security_protocol=0
                    )
                ],
                features=[],
                rack=rack,
                fenced=True,
                in_controlled_shutdown=False,
                is_migrating_zk_broker=False,
                log_dirs=[],
            )
        )
        return self._next_epoch

    def fence(self, node_id: int) -> None:
        """Fence a broker: it leaves its ISRs, and other replicas become leaders."""
        broker = self.image.brokers.get(node_id)
        if broker is None or broker.fenced:
            return
        records: list[object] = [FenceBrokerRecord(id=node_id, epoch=broker.epoch)]
        for topic in self.image.topics:
            for index, partition in topic.partitions.items():
                if node_id not in partition.isr:
                    continue
                isr = [each for each in partition.isr if each != node_id]
                change = PartitionChangeRecord(partition_id=index, topic_id=topic.id)
                if isr:
                    change.isr = isr
                if partition.leader == node_id:
                    alive = [each for each in isr if self.is_alive(each)]
                    change.leader = alive[0] if alive else NO_LEADER
                records.append(change)
        self.write(*records)

    def unfence(self, node_id: int) -> None:
        broker = self.image.brokers[node_id]
        self.write(UnfenceBrokerRecord(id=node_id, epoch=broker.epoch))
        for topic in self.image.topics:
            for index, partition in topic.partitions.items():
                if partition.leader == NO_LEADER and node_id in partition.isr:
                    self.elect(node_id, TopicPartition(topic.name, index))

    def elect(self, node_id: int, key: TopicPartition = PARTITION, unclean: bool = False) -> None:
        change = PartitionChangeRecord(
            partition_id=key.partition, topic_id=topic_id_of(key.topic), leader=node_id
        )
        if unclean:
            change.isr = [node_id]
        self.write(change)

    def change(self, key: TopicPartition = PARTITION, **fields: object) -> None:
        self.write(
            PartitionChangeRecord(
                partition_id=key.partition, topic_id=topic_id_of(key.topic), **fields
            )
        )

    def configure(self, topic: str = TOPIC, **values: str | None) -> None:
        self.write(
            *(
                ConfigRecord(
                    resource_type=2, resource_name=topic, name=name.replace("_", "."), value=value
                )
                for name, value in values.items()
            )
        )

    def is_alive(self, node_id: int) -> bool:
        broker = self.image.brokers.get(node_id)
        return broker is not None and not broker.fenced

    def alter(self, proposal: AlterPartitionProposal) -> AlterPartitionResult:
        """Handle AlterPartition, with Kafka's checks in Kafka's order."""
        self.proposals.append(proposal)
        answer = self._alter(proposal)
        self.answers.append(answer.error)
        return answer

    def _alter(self, proposal: AlterPartitionProposal) -> AlterPartitionResult:
        if self.refusals:
            return AlterPartitionResult(self.refusals.pop(0))
        key = proposal.topic_partition
        partition = self.image.topics.partition(*key)
        if partition is None:
            return AlterPartitionResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if proposal.leader_epoch != partition.leader_epoch:
            return AlterPartitionResult(ErrorCode.FENCED_LEADER_EPOCH)
        if proposal.partition_epoch != partition.partition_epoch:
            return AlterPartitionResult(ErrorCode.INVALID_UPDATE_VERSION)
        for broker_id, epoch in proposal.new_isr:
            broker = self.image.brokers.get(broker_id)
            if broker is None or broker.fenced or epoch not in (-1, broker.epoch):
                return AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA)
            assert broker_id in partition.replicas, "IsrSubsetOfReplicas"
        self.change(key, isr=list(proposal.broker_ids))
        after = self.image.topics.partition(*key)
        assert after is not None
        return AlterPartitionResult(
            ErrorCode.NONE, after.leader, after.leader_epoch, after.isr, after.partition_epoch
        )


class Node:
    """One broker, across restarts."""

    def __init__(self, cluster: ReplicatedCluster, node_id: int, **settings: object) -> None:
        self._cluster = cluster
        self.id = node_id
        self.name = f"b{node_id}"
        self.host = cluster.world.host(self.name)
        self.settings = settings
        self.is_up = False
        # Number of the running process; each start increases it.
        self.life = 0
        self._inbox: list[list[object]] = []
        self.failures: list[str] = []

    def start(self) -> None:
        """Start a process on the disk's data, with the controller's current image."""
        self.life += 1
        self.is_up = True
        self._inbox = []
        self.epoch = self._cluster.controller.register(self.id)
        self._inbox = []
        self._join()
        self.image = ClusterImage()
        self.replay([record for record, _ in self._cluster.controller.image.to_records()])
        self.manager.start()
        self._listen()
        self._cluster.controller.unfence(self.id)

    def _join(self) -> None:
        runtime = self.host.runtime
        self.log_dependencies = LogDependencies(
            disk=runtime.disk,
            clock=runtime.clock,
            executor=runtime.executor,
            timer=runtime.timer,
            rng=runtime.rng,
        )
        paths = self.settings.get("directories", [DATA])
        directories = [
            LogDirectory.open(runtime.disk, path, self.id, CLUSTER_ID, runtime.rng)
            for path in paths
        ]
        self.logs = LogManager(
            directories,
            StorageConfig(),
            self.log_dependencies,
            lambda directory, _: self._on_directory_failed(directory.path),
        )
        self.logs.startup(lambda topic: self.log_config(topic, {}))
        self.wheel = TimingWheel(runtime.clock, runtime.timer)
        self.view = ClusterView(runtime.clock, Backlog(runtime.clock, runtime.timer, fail_test))
        channels = ChannelDependencies(
            runtime.clock, runtime.timer, runtime.sockets, self.wheel, new_receive_buffer()
        )
        parts = ReplicationDependencies(
            self.wheel,
            runtime.clock,
            self,
            ReplicaMetrics(),
            self.log_config,
            self.settings.get("channels")
            or PeerChannels(channels, self._address, lambda _: None, connect_timeout_ms=1_000),
            lambda: self.epoch,
        )
        self.manager = ReplicaManager(self.id, self._cluster.config, self.logs, parts)
        remote = self.settings.get("remote")
        if remote is not None:
            # Only the part of followers: no segment is copied by this broker.
            followed = self.manager.followed
            followed._dependencies = replace(followed._dependencies, remote=remote(self))

    def log_config(self, topic: str, own: Mapping[str, str]) -> LogConfig:
        return replace(log_config(own), **self._cluster.log_settings)

    def _address(self, broker_id: int) -> tuple[str, int] | None:
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.listeners[LISTENER][:2]

    def _on_directory_failed(self, path: str) -> None:
        self.failures.append(path)
        self.manager.on_directory_failed(path)

    def _listen(self) -> None:
        runtime = self.host.runtime
        config = read_configuration({"node.id": str(self.id), "log.dirs": DATA}).parsed
        quotas = ClientQuotas(runtime.clock, config)
        self.sessions = FetchSessionCache(1_000, FETCH_SESSION_EVICTION_MS, runtime.clock,
                                          runtime.rng, self.manager.idle_partitions)  # fmt: skip
        parts = SimpleNamespace(
            guard=None,
            served=served_apis(has_telemetry=False),
            cluster=self.view,
            quotas=quotas,
            replicas=self.manager,
            fetch_sessions=self.sessions,
            config=config,
            conversions=ConversionQueue(runtime.timer, runtime.executor),
        )
        services = RequestDependencies(
            LISTENER,
            runtime.clock,
            quotas,
            runtime.watch,
            SliceQueue(runtime.clock, runtime.timer, runtime.watch),
            MissingFeatures(),
        )
        self.handlers = HandlerTable(parts, RequestStatistics())  # type: ignore[arg-type]
        dispatcher = Dispatcher(self.handlers.find, services)
        dependencies = ConnectionDependencies(runtime.clock, runtime.timer, new_receive_buffer())
        self.connections: list[Connection] = []

        def accept() -> Connection:
            connection = Connection(
                len(self.connections), dependencies, ConnectionLimits(), dispatcher.on_request,
                lambda *_: None,
            )  # fmt: skip
            self.connections.append(connection)
            return connection

        runtime.sockets.listen("", PORT, accept)

    def requests(self, api_key: int) -> int:
        """Return the number of requests of an API at this node's listener."""
        entry = self.handlers.find(api_key)
        assert entry is not None
        return sum(entry.statistics.versions)

    # Metadata.

    def learn_later(self, records: list[object]) -> None:
        if not self.is_up:
            return
        self._inbox.append(records)
        delay_ms = self._cluster.draw(self._cluster.metadata_delay_ms)
        self.host.timer.call_later(delay_ms, self._learn)

    def _learn(self) -> None:
        if self.id in self._cluster.controller.unreachable:
            if self._inbox:
                self.host.timer.call_later(_UNREACHABLE_MS, self._learn)
            return
        while self._inbox:
            self.replay(self._inbox.pop(0))

    def replay(self, records: list[Any]) -> None:
        delta = ClusterDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(Provenance())
        self.view.update(self.image)
        self.changes = self.manager.apply_delta(delta, self.image)

    def replay_now(self, key: TopicPartition = PARTITION, **fields: object) -> None:
        """Apply a change of the partition in the current turn."""
        change = PartitionChangeRecord(
            partition_id=key.partition, topic_id=topic_id_of(key.topic), **fields
        )
        self.replay([change])

    # AlterPartition.

    def submit(
        self,
        proposal: AlterPartitionProposal,
        on_done: Callable[[AlterPartitionResult], None],
    ) -> None:
        controller = self._cluster.controller
        timer = self.host.timer

        def arrive() -> None:
            if self.id in controller.unreachable:
                answer = AlterPartitionResult(ErrorCode.NETWORK_EXCEPTION)
            else:
                answer = controller.alter(proposal)
            delay_ms = self._cluster.draw(self._cluster.answer_delay_ms)
            timer.call_later(delay_ms, partial(on_done, answer))

        timer.call_later(self._cluster.draw(self._cluster.answer_delay_ms), arrive)

    # Lifecycle.

    def kill(self) -> None:
        self.is_up = False
        self.host.kill()
        self.host.start()

    def lose_power(self) -> None:
        self.is_up = False
        self.host.lose_power()
        self.host.start()

    # Queries of tests.

    def log(self, key: TopicPartition = PARTITION) -> Log:
        return self.logs.logs[key]

    def partition(self, key: TopicPartition = PARTITION) -> Partition:
        found = self.manager.partition(key)
        assert not isinstance(found, ErrorCode), found
        return found

    def values(self, key: TopicPartition = PARTITION) -> list[bytes]:
        """Return the values of all records in the log."""
        log = self.log(key)
        return [record.value for record in self.records(log.log_start_offset, key)]

    def records(self, offset: int, key: TopicPartition = PARTITION) -> list[Any]:
        log = self.log(key)
        found = []
        while offset < log.log_end_offset:
            read = log.reader.read(offset, 1 << 24, FetchIsolation.LOG_END, True)
            content = read.records.read() if isinstance(read.records, FileSlice) else read.records
            for header, records in read_batches(content):
                found += [each for each in records if each.offset >= offset]
                offset = header.next_offset
        return found

    def bytes(self, key: TopicPartition = PARTITION) -> bytes:
        return b"".join(
            bytes(segment.file.read_at(segment.size, 0)) for segment in self.log(key).segments
        )

    def produce(
        self,
        *values: bytes,
        acks: int = -1,
        timeout_ms: int = 10_000,
        key: TopicPartition = PARTITION,
    ) -> list[ProduceResult]:
        """Append one batch; the response is added to the returned list."""
        answered: list[ProduceResult] = []
        self.manager.append_records(
            timeout_ms,
            acks,
            {key: batch(*values)},
            AppendOrigin.CLIENT,
            lambda results: answered.append(results[key]),
        )
        return answered


class ReplicatedCluster:
    """Brokers 1 to n, with one topic."""

    def __init__(self, brokers: int = 3, seed: int = 1, **settings: Any) -> None:
        self.world = SimWorld(seed)
        self.rng = self.world.host("controller").rng
        self.metadata_delay_ms: float = settings.pop("metadata_delay_ms", 1.0)
        self.answer_delay_ms: float = settings.pop("answer_delay_ms", 1.0)
        self.racks: dict[int, str] = settings.pop("racks", {})
        self.log_settings: dict[str, object] = settings.pop("log_settings", {})
        node_settings = settings.pop("node_settings", {})
        self.config = ReplicationConfig(**settings)
        self.nodes: dict[int, Node] = {}
        self.controller = Controller(self)
        for node_id in range(1, brokers + 1):
            self.nodes[node_id] = Node(self, node_id, **node_settings)
        for node in self.nodes.values():
            node.start()

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id]

    def draw(self, delay_max_ms: float) -> float:
        return self.rng.random() * delay_max_ms

    def make_topic(
        self,
        topic: str = TOPIC,
        partitions: int = 1,
        replicas: tuple[int, ...] = (1, 2, 3),
        isr: tuple[int, ...] = (),
    ) -> None:
        topic_id = topic_id_of(topic)
        self.controller.write(
            TopicRecord(name=topic, topic_id=topic_id),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=list(replicas),
                    isr=list(isr or replicas),
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[],
                )
                for index in range(partitions)
            ),
        )
        assert self.until(lambda: all(self._has(topic, each) for each in replicas))

    def _has(self, topic: str, node_id: int) -> bool:
        """Return whether the node leads the topic or has requested it from the leader."""
        node = self.nodes.get(node_id)
        if node is None or not node.is_up:
            return True
        has_log = any(key.topic == topic for key in node.logs.logs)
        return has_log and not node.manager.followed.is_about_to_fetch

    def until(self, predicate: Callable[[], bool], limit_ms: float = 60_000.0) -> bool:
        return self.world.run_until(predicate, limit_ms)

    def run_for(self, duration_ms: float) -> None:
        self.world.run_for(duration_ms)

    def leader(self, key: TopicPartition = PARTITION) -> Node:
        registration = self.controller.image.topics.partition(*key)
        assert registration is not None
        return self.nodes[registration.leader]

    def registration(self, key: TopicPartition = PARTITION) -> Any:
        return self.controller.image.topics.partition(*key)

    def produce(self, *values: bytes, **options: Any) -> ProduceResult:
        """Append to the leader and wait for the response."""
        answered = self.leader(options.get("key", PARTITION)).produce(*values, **options)
        assert self.until(lambda: bool(answered))
        return answered[0]

    def kill(self, node_id: int) -> None:
        """Kill a node; the controller detects it at once."""
        self.nodes[node_id].kill()
        self.controller.fence(node_id)

    def restart(self, node_id: int) -> None:
        self.controller.fence(node_id)
        self.nodes[node_id].start()

    def in_sync(self, key: TopicPartition = PARTITION) -> bool:
        """Return whether every replica is in the ISR and has all records of the leader."""
        registration = self.registration(key)
        leader = self.nodes[registration.leader]
        return set(registration.isr) == set(registration.replicas) and all(
            self.nodes[each].log(key).log_end_offset == leader.log(key).log_end_offset
            and self.nodes[each].log(key).high_watermark == leader.log(key).high_watermark
            for each in registration.replicas
        )
