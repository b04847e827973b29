"""Random events of a cluster of controllers and simulated brokers, from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.nodes import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from barnabas.protocol.messages.partition_changes import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    BrokerState,
    ElectLeadersRequest,
    PartitionDataRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicDataRequest,
    TopicPartitions,
)
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from simulation.controller_hosts import FEATURES, ControllerHosts, ControllerReplica
from simulation.quorum_hosts import CLUSTER_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.partition_registration import PartitionRegistration

BROKERS = (101, 102, 103, 104)
_BEAT_MS = 300


@dataclass
class SimBroker:
    """A simulated broker that only communicates with controllers."""

    id: int
    life: int = 1
    epoch: int = -1
    is_alive: bool = True
    wants_shut_down: bool = False


class ControllerFaults:
    """Causes random events. Live controllers must respond exactly once to each request."""

    def __init__(self, seed: int) -> None:
        # Frequent snapshots, so that a node loads one after a downtime.
        self.hosts = ControllerHosts(seed, snapshot_record_bytes=4_000, retention_bytes=1)
        self.rng = self.hosts.rng
        self.brokers = {each: SimBroker(each) for each in BROKERS}
        self._topics = 0
        # Requests without a response so far, and the node that has each of them.
        self.open: dict[int, ControllerReplica] = {}
        self._requests = 0
        self.answered: dict[int, int] = {}
        self._acts: list[tuple[int, Callable[[], None]]] = [
            (20, self._change_isr),
            (6, self._create_topic),
            (6, self._kill_or_revive_broker),
            (4, self._shut_down_broker),
            (6, self._reassign),
            (4, self._elect),
            (3, self._configure),
            (3, self._kill_or_revive_controller),
            (2, self._partition_controllers),
            (4, self._wait),
        ]

    def run(self, steps: int) -> None:
        """Run this number of random events, one after the other."""
        self.hosts.await_active()
        total = sum(weight for weight, _ in self._acts)
        for _ in range(steps):
            drawn = self.rng.randint(1, total)
            for weight, act in self._acts:
                drawn -= weight
                if drawn <= 0:
                    act()
                    break
            self._advance(self.rng.randint(1, 120))

    def settle(self) -> ClusterImage:
        """Restart all nodes, and wait until every broker is unfenced."""
        self.hosts.world.network.heal()
        self.hosts.start_all()

        def are_in() -> bool:
            image = self._image()
            found = [] if image is None else list(image.brokers.values())
            return sum(not each.fenced for each in found) == len(BROKERS)

        for _ in range(200):
            for broker in self.brokers.values():
                broker.wants_shut_down = False
                self._revive(broker)
            self._advance(100)
            if are_in():
                break
        assert are_in(), (self._image(), self.brokers)
        assert self.hosts.run_until(lambda: not self._waiting()), self._waiting()
        assert set(self.answered.values()) <= {1}, "EveryRequestAnsweredOnce"
        return self.hosts.settle_metadata()

    def _waiting(self) -> list[int]:
        running = self.hosts.running()
        return [number for number, replica in self.open.items() if replica in running]

    # -- brokers' lives ---------------------------------------------------------------------------

    def _advance(self, duration_ms: int) -> None:
        """Advance time while live brokers send heartbeats."""
        while duration_ms > 0:
            for broker in self.brokers.values():
                if broker.is_alive:
                    self._send_heartbeat(broker)
            self.hosts.run_for(min(duration_ms, _BEAT_MS))
            duration_ms -= _BEAT_MS

    def _send_heartbeat(self, broker: SimBroker) -> None:
        if broker.epoch < 0:
            self._register(broker)
            return
        life, epoch = broker.life, broker.epoch

        def on_done(answer: Any) -> None:
            if broker.life != life:
                return
            if answer.should_shut_down:
                broker.is_alive, broker.wants_shut_down = False, False
            elif answer.error_code == 77:
                # Another controller does not know this registration: it was not committed.
                broker.epoch = -1

        request = BrokerHeartbeatRequest(
            broker_id=broker.id,
            broker_epoch=epoch,
            current_metadata_offset=self._read_offset(),
            want_fence=False,
            want_shut_down=broker.wants_shut_down,
        )
        self._send(request, on_done)

    def _register(self, broker: SimBroker) -> None:
        life = broker.life

        def on_done(answer: Any) -> None:
            if broker.life == life and not answer.error_code:
                broker.epoch = answer.broker_epoch

        request = BrokerRegistrationRequest(
            broker_id=broker.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=broker.id.to_bytes(8, "big") + life.to_bytes(8, "big"),
            listeners=[Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
            features=[
                Feature(name=name, min_supported_version=0, max_supported_version=level)
                for name, level in FEATURES.items()
            ],
            rack="ab"[broker.id % 2],
            log_dirs=[broker.id.to_bytes(16, "big")],
            previous_broker_epoch=-1,
        )
        self._send(request, on_done)

    def _read_offset(self) -> int:
        """Return the metadata offset of a broker: that of a random replica."""
        running = self.hosts.running()
        replica = running[self.rng.randint(0, len(running) - 1)] if running else None
        return -1 if replica is None else replica.publisher.image.provenance.offset

    # -- acts -------------------------------------------------------------------------------------

    def _kill_or_revive_broker(self) -> None:
        broker = self._random_broker()
        if self._revive(broker):
            return
        broker.is_alive = False
        active = self.hosts.active()
        if active is not None and self.rng.random() < 0.7:
            # Otherwise it is fenced when its session expires.
            active.controller.on_broker_lost(broker.id, broker.epoch)

    @staticmethod
    def _revive(broker: SimBroker) -> bool:
        """Start a new process if the last is dead."""
        if broker.is_alive:
            return False
        broker.is_alive, broker.life, broker.epoch = True, broker.life + 1, -1
        return True

    def _shut_down_broker(self) -> None:
        self._random_broker().wants_shut_down = True

    def _create_topic(self) -> None:
        self._topics += 1
        unclean = "true" if self.rng.random() < 0.3 else "false"
        topic = CreatableTopic(
            name=f"topic-{self._topics}",
            num_partitions=self.rng.randint(1, 4),
            replication_factor=self.rng.randint(1, 3),
            assignments=[],
            configs=[
                CreatableTopicConfig(name="min.insync.replicas", value=str(self.rng.randint(1, 3))),
                CreatableTopicConfig(name="unclean.leader.election.enable", value=unclean),
            ],
        )
        self._send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))

    def _change_isr(self) -> None:
        found = self._random_partition()
        if found is None:
            return
        topic_id, _, index, partition = found
        leader = self.brokers.get(partition.leader)
        if leader is None or not leader.is_alive:
            return
        others = [each for each in partition.replicas if each != leader.id]
        isr = [leader.id, *(each for each in others if self.rng.random() < 0.6)]
        proposal = PartitionDataRequest(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=self.brokers[each].epoch) for each in isr
            ],
            leader_recovery_state=0,
            partition_epoch=partition.partition_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=leader.id,
            broker_epoch=leader.epoch,
            topics=[TopicDataRequest(topic_id=topic_id, partitions=[proposal])],
        )
        self._send(request)

    def _reassign(self) -> None:
        found = self._random_partition()
        if found is None:
            return
        _, name, index, _ = found
        wanted: list[int] | None = [each for each in BROKERS if self.rng.random() < 0.5]
        if self.rng.random() < 0.3:
            wanted = None
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=30_000,
            topics=[
                ReassignableTopic(
                    name=name,
                    partitions=[ReassignablePartition(partition_index=index, replicas=wanted)],
                )
            ],
        )
        self._send(request)

    def _elect(self) -> None:
        found = self._random_partition()
        wanted = None
        if found is not None and self.rng.random() < 0.7:
            wanted = [TopicPartitions(topic=found[1], partitions=[found[2]])]
        request = ElectLeadersRequest(
            election_type=self.rng.randint(0, 1), topic_partitions=wanted, timeout_ms=30_000
        )
        self._send(request)

    def _configure(self) -> None:
        found = self._random_partition()
        if found is None:
            return
        value = str(self.rng.randint(1, 3))
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2,
                    resource_name=found[1],
                    configs=[
                        AlterableConfig(name="min.insync.replicas", config_operation=0, value=value)
                    ],
                )
            ],
            validate_only=False,
        )
        self._send(request)

    def _kill_or_revive_controller(self) -> None:
        down = [each for each, replica in self.hosts.replicas.items() if replica is None]
        if down:
            self.hosts.start(down[0])
            return
        active = self.hosts.active()
        if active is not None and self.rng.random() < 0.7:
            self.hosts.kill(active.config.node_id)
        else:
            self.hosts.lose_power(self.rng.randint(1, 3))

    def _partition_controllers(self) -> None:
        if self.rng.random() < 0.6:
            self.hosts.world.network.heal()
        else:
            self.hosts.isolate(self.rng.randint(1, 3))

    def _wait(self) -> None:
        self._advance(self.rng.randint(500, 6_000))

    # -- choices ----------------------------------------------------------------------------------

    def _random_broker(self) -> SimBroker:
        return self.brokers[BROKERS[self.rng.randint(0, len(BROKERS) - 1)]]

    def _image(self) -> ClusterImage | None:
        active = self.hosts.active()
        return None if active is None else active.controller.image

    def _random_partition(self) -> tuple[bytes, str, int, PartitionRegistration] | None:
        """Return a random partition in the image of a random replica, which may be outdated."""
        running = self.hosts.running()
        if not running:
            return None
        image = running[self.rng.randint(0, len(running) - 1)].publisher.image
        topics = sorted(image.topics, key=lambda each: each.name)
        if not topics:
            return None
        topic = topics[self.rng.randint(0, len(topics) - 1)]
        index = self.rng.randint(0, len(topic.partitions) - 1)
        return topic.id, topic.name, index, topic.partitions[index]

    def _send(self, request: Any, on_done: Callable[[Any], None] = lambda _: None) -> None:
        """Send a request to the active controller, or sometimes to another controller."""
        replica = self.hosts.active()
        running = self.hosts.running()
        if replica is None or self.rng.random() < 0.05:
            if not running:
                return
            chosen = running[self.rng.randint(0, len(running) - 1)]
            assert isinstance(chosen, ControllerReplica)
            replica = chosen
        self._requests += 1
        number, asked = self._requests, replica
        self.open[number] = replica

        def answered(answer: Any) -> None:
            self.answered[number] = self.answered.get(number, 0) + 1
            self.open.pop(number, None)
            if asked in self.hosts.running():
                on_done(answer)

        replica.controller.serve(request, answered)
