"""A model of brokers: their data directories, and the records in them.

The brokers send requests to real controllers. A leader appends and its followers copy. A record is
acknowledged once the whole ISR has it, and the ISR is large enough. A wiped directory has a new id
and no records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from typing import TYPE_CHECKING, Any

from barnabas.metadata.partition_registration import NO_LEADER
from barnabas.protocol.messages.log_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryDataRequest,
    PartitionDataRequest as AssignedPartition,
    TopicDataRequest as AssignedTopic,
)
from barnabas.protocol.messages.nodes import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from barnabas.protocol.messages.partition_changes import (
    AlterPartitionRequest,
    BrokerState,
    PartitionDataRequest,
    TopicDataRequest,
)
from barnabas.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from simulation.controller_hosts import FEATURES, ControllerHosts
from simulation.quorum_hosts import CLUSTER_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.partition_registration import PartitionRegistration

BROKERS = (101, 102, 103)
_TICK_MS = 50
_BEAT_MS = 300

# Topic name and partition index.
Key = tuple[str, int]


@dataclass
class DataBroker:
    """A broker process, and its disks, which keep their data after the process ends."""

    id: int
    directories: list[bytes]
    # By replica: its directory, and its records in order.
    logs: dict[Key, tuple[bytes, list[int]]] = field(default_factory=dict)
    is_alive: bool = True
    life: int = 1
    epoch: int = -1
    # Broker epoch of the last clean stop; -1 after a kill.
    clean_epoch: int = -1
    is_asking: bool = False
    beat_at: float = 0.0
    # Replicas with a pending ISR change to add them. The leader waits for them too.
    joining: dict[Key, set[int]] = field(default_factory=dict)
    assigning: set[Key] = field(default_factory=set)

    def records(self, key: Key) -> list[int]:
        """Return the records of the replica; empty without a replica."""
        return self.logs[key][1] if key in self.logs else []


class DataBrokers:
    """Brokers with topics: by default three, and replicas placed in every order.

    Args:
        min_isr: min.insync.replicas of all topics.
        directories: number of data directories of each broker.
    """

    # Host of each broker.
    machines: Mapping[int, str] = dict.fromkeys(BROKERS, "h")

    def __init__(self, seed: int, min_isr: int = 1, directories: int = 1) -> None:
        self.hosts = ControllerHosts(seed)
        self._min_isr = min_isr
        self._made = 0
        self.brokers = {
            each: DataBroker(each, [self._new_directory() for _ in range(directories)])
            for each in self.machines
        }
        # The newest committed image that a controller has shown.
        self.image: ClusterImage | None = None
        # Leader epoch, and process number of the leader, at the last check.
        self._led: dict[Key, tuple[int, int]] = {}
        self.acknowledged: dict[Key, list[int]] = {}
        self._records = 0
        self.hosts.await_active()
        self.run_until(lambda: self.unfenced() == set(self.machines))
        self._create_topics()
        self.live(500)
        assert all(self.acknowledged[key] for key in self.partitions())

    def _new_directory(self) -> bytes:
        self._made += 1
        return bytes(12) + b"dir" + bytes([self._made])

    def _create_topics(self) -> None:
        """Create `all` with all orders of three replicas, and `alone` with one on each broker."""
        for name, placed in (
            ("all", list(permutations(BROKERS))),
            ("alone", [(each,) for each in BROKERS]),
        ):
            self.create_topic(
                name,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                    for index, replicas in enumerate(placed)
                ],
            )

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        factor: int = -1,
        assignments: Sequence[CreatableReplicaAssignment] = (),
    ) -> None:
        """Create a topic, whose replicas the controller places unless they are assigned."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            assignments=list(assignments),
            configs=[CreatableTopicConfig(name="min.insync.replicas", value=str(self._min_isr))],
        )
        answer = self.hosts.ask(CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0, answer

    # -- what a test does -------------------------------------------------------------------------

    def kill(self, broker_id: int, *, is_noticed: bool = True) -> None:
        """Kill a broker. With `is_noticed`, the controller detects the closed connection."""
        broker = self.brokers[broker_id]
        epoch = broker.epoch
        broker.is_alive, broker.epoch, broker.clean_epoch = False, -1, -1
        broker.is_asking = False
        broker.joining.clear()
        broker.assigning.clear()
        active = self.hosts.active()
        if active is not None and is_noticed:
            controller = active.controller
            controller.on_broker_suspected(broker_id, epoch)
            timer = active.driver.log_dependencies.timer
            timer.call_later(200, lambda: controller.on_broker_lost(broker_id, epoch))

    def wipe(self, broker_id: int, directory: int | None = None) -> None:
        """Replace the disk of one directory, or of all directories."""
        broker = self.brokers[broker_id]
        assert not broker.is_alive
        for index, former in enumerate(broker.directories):
            if directory in (None, index):
                broker.directories[index] = self._new_directory()
                gone = [key for key, (where, _) in broker.logs.items() if where == former]
                for key in gone:
                    del broker.logs[key]

    def start(self, broker_id: int) -> None:
        """Start a new process."""
        broker = self.brokers[broker_id]
        assert not broker.is_alive
        broker.is_alive, broker.life = True, broker.life + 1

    def live(self, duration_ms: float) -> None:
        """Advance time."""
        end = self.hosts.world.scheduler.now_ms + duration_ms
        while self.hosts.world.scheduler.now_ms < end:
            self._tick()

    def run_until(self, condition: Callable[[], bool], limit_ms: float = 30_000) -> None:
        """Advance time until the condition holds."""
        end = self.hosts.world.scheduler.now_ms + limit_ms
        while not condition():
            assert self.hosts.world.scheduler.now_ms < end, self.describe()
            self._tick()

    def leaderless(self) -> set[Key]:
        """Return the partitions without a leader."""
        return {key for key, each in self.partitions().items() if each.leader == NO_LEADER}

    def whole_copies(self, key: Key) -> list[int]:
        """Return the brokers whose disks have all acknowledged records."""
        wanted = set(self.acknowledged[key])
        return [each.id for each in self.brokers.values() if wanted <= set(each.records(key))]

    def describe(self) -> str:
        lines = [f"{key}: {each}" for key, each in self.partitions().items()]
        lines += [f"{each}" for each in self.brokers.values()]
        return "\n".join(lines)

    # -- time -------------------------------------------------------------------------------------

    def _tick(self) -> None:
        for broker in self.brokers.values():
            if broker.is_alive:
                self._send_heartbeat(broker)
        self.hosts.run_for(_TICK_MS)
        for replica in self.hosts.running():
            image = replica.publisher.image
            if self.image is None or image.provenance.offset > self.image.provenance.offset:
                self.image = image
        self._check_leaders()
        for key, partition in self.partitions().items():
            self._replicate(key, partition)

    def partitions(self) -> dict[Key, PartitionRegistration]:
        topics = () if self.image is None else self.image.topics
        return {
            (topic.name, index): each
            for topic in topics
            for index, each in topic.partitions.items()
        }

    def _check_leaders(self) -> None:
        """Check that an elected process has all acknowledged records."""
        for key, partition in self.partitions().items():
            leader = self.brokers.get(partition.leader)
            if leader is None or len(partition.replicas) == 1 or not self._is_registered(leader):
                # A dead process remains leader until the controller notices its death.
                continue
            now = partition.leader_epoch, leader.life
            if self._led.get(key) == now or key not in self.acknowledged:
                continue
            self._led[key] = now
            whole = self.whole_copies(key)
            assert leader.id in whole, (
                f"CommittedNeverLost: {leader.id} is to lead {key}, and what is acknowledged is "
                f"on {whole}: {partition}\n{self.describe()}"
            )

    # -- what brokers do --------------------------------------------------------------------------

    def _is_registered(self, broker: DataBroker) -> bool:
        """Return whether the broker has read its registration and has opened its logs."""
        known = None if self.image is None else self.image.brokers.get(broker.id)
        return broker.is_alive and known is not None and known.epoch == broker.epoch

    def unfenced(self) -> set[int]:
        """Return the registered brokers that are not fenced."""
        brokers = () if self.image is None else self.image.brokers.values()
        return {each.id for each in brokers if not each.fenced}

    def _send_heartbeat(self, broker: DataBroker) -> None:
        now_ms = self.hosts.world.scheduler.now_ms
        if broker.is_asking or now_ms < broker.beat_at:
            return
        broker.is_asking, broker.beat_at = True, now_ms + _BEAT_MS
        if broker.epoch < 0:
            self._register(broker)
            return
        request = BrokerHeartbeatRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            current_metadata_offset=-1 if self.image is None else self.image.provenance.offset,
            want_fence=False,
            want_shut_down=False,
        )
        self._ask(broker, request, lambda _: None)

    def _register(self, broker: DataBroker) -> None:
        def on_done(answer: Any) -> None:
            if not answer.error_code:
                broker.epoch, broker.beat_at = answer.broker_epoch, 0.0

        request = BrokerRegistrationRequest(
            broker_id=broker.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=broker.id.to_bytes(8, "big") + broker.life.to_bytes(8, "big"),
            listeners=[
                Listener(
                    name="PLAINTEXT",
                    host=self.machines[broker.id],
                    port=9092,
                    security_protocol=0,
                )
            ],
            features=[
                Feature(name=name, min_supported_version=0, max_supported_version=level)
                for name, level in FEATURES.items()
            ],
            rack=None,
            log_dirs=broker.directories,
            previous_broker_epoch=broker.clean_epoch,
        )
        self._ask(broker, request, on_done)

    def _ask(self, broker: DataBroker, request: Any, on_done: Callable[[Any], None]) -> None:
        active, life = self.hosts.active(), broker.life
        if active is None:
            broker.is_asking = False
            return

        def answered(answer: Any) -> None:
            if broker.life == life and broker.is_alive:
                broker.is_asking = False
                on_done(answer)

        active.controller.serve(request, answered)

    def _replicate(self, key: Key, partition: PartitionRegistration) -> None:
        """Report directories, append on the leader, and copy to followers."""
        open_ones = [
            self.brokers[each]
            for each in partition.replicas
            if self._is_registered(self.brokers[each])
        ]
        for broker in open_ones:
            directory = broker.logs.setdefault(key, (self._placed(broker, key, partition), []))[0]
            if partition.directory_of(broker.id) != directory:
                self._assign(broker, key, directory)
        leader = self.brokers.get(partition.leader)
        if leader is None or leader not in open_ones or leader.id not in self.unfenced():
            return
        self._records += 1
        records = leader.records(key)
        records.append(self._records)
        for follower in open_ones:
            if follower is not leader:
                follower.logs[key] = follower.logs[key][0], list(records)
        waited_for = {*partition.isr, *leader.joining.get(key, ())}
        has_all = all(self._records in self.brokers[each].records(key) for each in waited_for)
        if has_all and len(partition.isr) >= min(self._min_isr, len(partition.replicas)):
            self.acknowledged.setdefault(key, []).append(self._records)
        self._propose(leader, key, partition, open_ones)

    def _placed(self, broker: DataBroker, key: Key, partition: PartitionRegistration) -> bytes:
        """Return the directory for a new replica: that in the metadata, if possible."""
        wanted = partition.directory_of(broker.id)
        if wanted in broker.directories:
            return wanted
        return broker.directories[key[1] % len(broker.directories)]

    def _propose(
        self,
        leader: DataBroker,
        key: Key,
        partition: PartitionRegistration,
        open_ones: Iterable[DataBroker],
    ) -> None:
        """Propose an ISR with the replicas that have caught up."""
        assert self.image is not None
        unfenced = self.unfenced()
        isr = [*partition.isr]
        isr += [each.id for each in open_ones if each.id not in isr and each.id in unfenced]
        is_settled = len(isr) == len(partition.isr) and not partition.leader_recovery_state
        if is_settled or key in leader.joining:
            return
        leader.joining[key] = set(isr)
        topic = self.image.topics.by_name(key[0])
        assert topic is not None
        proposal = PartitionDataRequest(
            partition_index=key[1],
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=self.image.brokers[each].epoch)
                for each in isr
            ],
            partition_epoch=partition.partition_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=leader.id,
            broker_epoch=leader.epoch,
            topics=[TopicDataRequest(topic_id=topic.id, partitions=[proposal])],
        )
        self._send_to_controller(leader, request, lambda: leader.joining.pop(key, None))

    def _assign(self, broker: DataBroker, key: Key, directory: bytes) -> None:
        """Report the directory of a replica to the controller."""
        assert self.image is not None
        topic = self.image.topics.by_name(key[0])
        if topic is None or key in broker.assigning:
            return
        broker.assigning.add(key)
        where = AssignedTopic(
            topic_id=topic.id, partitions=[AssignedPartition(partition_index=key[1])]
        )
        request = AssignReplicasToDirsRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            directories=[DirectoryDataRequest(id=directory, topics=[where])],
        )
        self._send_to_controller(broker, request, lambda: broker.assigning.discard(key))

    def _send_to_controller(
        self, broker: DataBroker, request: Any, on_done: Callable[[], object]
    ) -> None:
        """Send a request other than a heartbeat; without a controller, retry in the next tick."""
        active, life = self.hosts.active(), broker.life
        if active is None:
            on_done()
            return

        def answered(_: Any) -> None:
            if broker.life == life and broker.is_alive:
                on_done()

        active.controller.serve(request, answered)
