"""A case for two controllers: simulated brokers send requests; responses and records are compared.

The brokers of a case are numbered from 1. Each case has separate ids, directories and topics.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from barnabas.metadata.partition_registration import RESERVED_DIRECTORIES
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
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
    UnregisterBrokerRequest,
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
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.schema import Struct
from differential.controllers import FEATURES, SESSION_MS, ControllerSide
from jvm.kafka_process import CLUSTER_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.protocol.schema import Message, Record

    Build = Callable[[ControllerSide], Message]
    # Name, version and fields of a record.
    Flat = tuple[str, int, Any]

CAUGHT_UP = 1 << 40
# Fields that Kafka writes in the order of a hash set.
_SETS = frozenset({"eligible_leader_replicas"})
_EPOCHS = frozenset({"broker_epoch", "epoch"})
# Error messages, and fields that the comparison of brokers covers already.
_NOT_COMPARED = frozenset({"error_message", "throttle_time_ms", "configs"})
# Records that a controller writes periodically.
_BY_TIME = frozenset({"NoOpRecord"})
_SLACK_S = 0.1


class PausedMachineError(Exception):
    """The machine was paused so long that sessions may have ended. The case has no result."""


class Scene:
    """One case."""

    def __init__(self, sides: Sequence[ControllerSide], number: int) -> None:
        self.sides = sides
        self.number = number
        # Lines that describe the differences.
        self.found: list[str] = []
        self._steps = 0
        # The earliest possible start of the current sessions, in seconds.
        self._since = time.monotonic()
        for side in sides:
            side.new_records()

    def close(self) -> None:
        """Unregister the brokers of the case, which could delay the next case."""
        for side in self.sides:
            for broker in list(side.image.brokers):
                if broker // 100 == self.number:
                    side.exchange(UnregisterBrokerRequest(broker_id=broker), 0)
            side.new_records()

    # -- names ------------------------------------------------------------------------------------

    def id(self, broker: int) -> int:
        """Return the id of a broker of this case."""
        return self.number * 100 + broker

    def topic(self, name: str) -> str:
        """Return the name of a topic of this case."""
        return f"case-{self.number}-{name}"

    def directory(self, broker: int, number: int = 0) -> bytes:
        """Return the id of a data directory."""
        return b"directory" + self.id(broker).to_bytes(6, "big") + bytes([number])

    def epoch(self, side: ControllerSide, broker: int) -> int:
        """Return the current epoch of a broker; -1 if it is not registered."""
        known = side.image.brokers.get(self.id(broker))
        return -1 if known is None else known.epoch

    def partition(self, side: ControllerSide, topic: str, index: int = 0) -> PartitionRegistration:
        """Return the state of a partition according to the records."""
        found = side.image.topics.partition(self.topic(topic), index)
        assert found is not None, (topic, index)
        return found

    def topic_id(self, side: ControllerSide, topic: str) -> bytes:
        """Return the topic id that a controller generated."""
        found = side.image.topics.by_name(self.topic(topic))
        return bytes(15) + b"\x09" if found is None else found.id

    def wait_for_sessions_to_end(self) -> None:
        """Sleep until all sessions have ended."""
        # No condition shows the end of a session: only time ends it.
        time.sleep((SESSION_MS + 500) / 1000)
        for side in self.sides:
            side.new_records()
        self._since = time.monotonic()

    # -- comparing --------------------------------------------------------------------------------

    def step(self, build: Build, version: int) -> tuple[Any, ...]:
        """Send the same request to both controllers, and compare the responses and records.

        Raises:
            PausedMachineError: a session may have ended too early.
        """
        self._steps += 1
        responses, flats, written = [], [], []
        for side in self.sides:
            request = build(side)
            response = side.exchange(request, version)
            records = side.new_records()
            self._remember(side, records)
            responses.append(response)
            flats.append(self._flat(response, side))
            ours = [
                (type(record).__name__, number, self._flat(record, side))
                for record, number in records
                if self._is_ours(record, side)
            ]
            written.append(_in_order(ours))
        if time.monotonic() - self._since > SESSION_MS / 1000 - _SLACK_S:
            raise PausedMachineError
        name = type(request).__name__.removesuffix("Request")
        where = f"step {self._steps} {name}"
        self._note(f"{where} response", *flats)
        self._note(
            f"{where} number of records",
            *[[(name, number) for name, number, _ in each] for each in written],
        )
        for index, pair in enumerate(zip(*written, strict=False)):
            self._note(f"{where} record {index} {pair[0][0]}", *[each[2] for each in pair])
        return tuple(responses)

    def _note(self, where: str, kafka: Any, barnabas: Any) -> None:
        if kafka == barnabas:
            return
        if isinstance(kafka, dict) and isinstance(barnabas, dict):
            for key in dict.fromkeys([*kafka, *barnabas]):
                if kafka.get(key) != barnabas.get(key):
                    self._note(f"{where}.{key}", kafka.get(key), barnabas.get(key))
        elif isinstance(kafka, list) and isinstance(barnabas, list) and len(kafka) == len(barnabas):
            for index, pair in enumerate(zip(kafka, barnabas, strict=True)):
                self._note(f"{where}[{index}]", *pair)
        else:
            self.found.append(f"{where}: Kafka {kafka}, Barnabas {barnabas}")

    def _remember(self, side: ControllerSide, records: Sequence[tuple[Record, int]]) -> None:
        for record, _ in records:
            kind = type(record).__name__
            if kind == "TopicRecord":
                side.topics[record.topic_id] = record.name  # type: ignore[attr-defined]
            elif kind == "RegisterBrokerRecord":
                broker = record.broker_id  # type: ignore[attr-defined]
                life = (broker, record.broker_epoch)  # type: ignore[attr-defined]
                lives = sum(each == broker for each, _ in side.epochs)
                side.epochs.setdefault(life, f"<life {lives + 1} of {broker}>")

    def _is_ours(self, record: Record, side: ControllerSide) -> bool:
        """Return whether a record belongs to a broker or topic of this case."""
        if type(record).__name__ in _BY_TIME:
            return False
        prefix = f"case-{self.number}-"
        topic_id = getattr(record, "topic_id", None)
        if topic_id is not None:
            return side.topics.get(topic_id, prefix).startswith(prefix)
        node = getattr(record, "broker_id", getattr(record, "controller_id", None))
        return node is None or node // 100 == self.number

    def _flat(self, struct: Any, side: ControllerSide) -> Any:
        """Return comparable values, with the names of the case for generated ids."""
        if isinstance(struct, Struct):
            flat = {}
            broker = getattr(struct, "broker_id", None)
            for each in struct.__fields__:
                value = getattr(struct, each.name)
                if each.name in _NOT_COMPARED:
                    continue
                if each.name in _EPOCHS:
                    lives = [n for (b, e), n in side.epochs.items() if e == value]
                    known = side.epochs.get((broker, value)) if broker is not None else None
                    flat[each.name] = known or (lives[0] if lives else value)
                elif each.name in _SETS and value is not None:
                    flat[each.name] = sorted(value)
                else:
                    flat[each.name] = self._flat(value, side)
            return flat
        if isinstance(struct, list):
            return [self._flat(each, side) for each in struct]
        if isinstance(struct, bytes):
            if struct in side.topics:
                return f"<id of {side.topics[struct]}>"
            return struct.hex()
        return int(struct) if isinstance(struct, int) and not isinstance(struct, bool) else struct

    # -- requests ---------------------------------------------------------------------------------

    def register(
        self, broker: int, life: int = 1, *, clean: bool = False, version: int = 4, **fields: Any
    ) -> tuple[Any, ...]:
        """Register a broker.

        Args:
            broker: the number of the broker.
            life: the number of its incarnation.
            clean: whether the request contains the previous broker epoch.
            version: the version of the request.
            fields: replace fields of the request.
        """
        levels = {name: (0, level) for name, level in FEATURES.items()}
        levels["metadata.version"] = (7, 33)

        def build(side: ControllerSide) -> Message:
            usual: dict[str, Any] = {
                "broker_id": self.id(broker),
                "cluster_id": CLUSTER_ID,
                "incarnation_id": b"incarnation"
                + self.id(broker).to_bytes(4, "big")
                + bytes([life]),
                "listeners": [Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
                "features": features_of(levels),
                "rack": None,
                "log_dirs": [self.directory(broker)],
                "previous_broker_epoch": self.epoch(side, broker) if clean else -1,
            }
            return BrokerRegistrationRequest(**{**usual, **fields})

        return self.step(build, version)

    def heartbeat(
        self,
        broker: int,
        *,
        offset: int | Callable[[ControllerSide], int] = CAUGHT_UP,
        fence: bool = False,
        shut_down: bool = False,
        epoch: int | None = None,
        **directories: Sequence[bytes],
    ) -> tuple[Any, ...]:
        """Send the heartbeat of a broker.

        Args:
            directories: `offline_log_dirs`, `cordoned_log_dirs`.
        """
        given = {name: list(value) for name, value in directories.items()}
        return self.step(
            lambda side: BrokerHeartbeatRequest(
                broker_id=self.id(broker),
                broker_epoch=self.epoch(side, broker) if epoch is None else epoch,
                current_metadata_offset=offset(side) if callable(offset) else offset,
                want_fence=fence,
                want_shut_down=shut_down,
                **given,
            ),
            2 if "cordoned_log_dirs" in given else 1,
        )

    def brokers(self, *brokers: int, directories: int = 1) -> None:
        """Register and unfence brokers."""
        for broker in brokers:
            own = [self.directory(broker, number) for number in range(directories)]
            self.register(broker, log_dirs=own)
            self.heartbeat(broker)
            # Kafka ignores the offset in the heartbeat that unfences the broker.
            self.heartbeat(broker)

    def create(self, name: str, *replicas: Sequence[int], **configs: str) -> tuple[Any, ...]:
        """Create a topic with these replicas of each partition."""
        return self.step(
            lambda _: CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=self.topic(name),
                        num_partitions=-1,
                        replication_factor=-1,
                        assignments=[
                            CreatableReplicaAssignment(
                                partition_index=index, broker_ids=[self.id(b) for b in each]
                            )
                            for index, each in enumerate(replicas)
                        ],
                        configs=[
                            CreatableTopicConfig(name=key.replace("_", "."), value=value)
                            for key, value in configs.items()
                        ],
                    )
                ],
                timeout_ms=10_000,
            ),
            7,
        )

    def config(self, name: str, key: str, value: str) -> tuple[Any, ...]:
        """Set a config of a topic."""
        return self.step(
            lambda _: IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=2,
                        resource_name=self.topic(name),
                        configs=[AlterableConfig(name=key, config_operation=0, value=value)],
                    )
                ],
                validate_only=False,
            ),
            1,
        )

    def isr(
        self, name: str, leader: int, isr: Sequence[int], index: int = 0, **given: int
    ) -> tuple[Any, ...]:
        """Propose an ISR as the leader.

        Args:
            given: `leader_epoch` and `partition_epoch` are added to the current epochs, and
                `member_epoch` to the broker epochs of the ISR. `broker_epoch` and `recovery`
                replace the current values.
        """

        def build(side: ControllerSide) -> Message:
            topic = side.image.topics.by_name(self.topic(name))
            known = None if topic is None else topic.partitions.get(index)
            shift = given.get("member_epoch", 0)
            proposal = PartitionDataRequest(
                partition_index=index,
                leader_epoch=given.get("leader_epoch", 0),
                new_isr_with_epochs=[
                    BrokerState(
                        broker_id=self.id(each), broker_epoch=self.epoch(side, each) + shift
                    )
                    for each in isr
                ],
                leader_recovery_state=0,
                partition_epoch=given.get("partition_epoch", 0),
            )
            if known is not None:
                proposal.leader_epoch += known.leader_epoch
                proposal.partition_epoch += known.partition_epoch
                proposal.leader_recovery_state = known.leader_recovery_state
            proposal.leader_recovery_state = given.get("recovery", proposal.leader_recovery_state)
            return AlterPartitionRequest(
                broker_id=self.id(leader),
                broker_epoch=given.get("broker_epoch", self.epoch(side, leader)),
                topics=[
                    TopicDataRequest(topic_id=self.topic_id(side, name), partitions=[proposal])
                ],
            )

        return self.step(build, 3)

    def reassign(
        self,
        name: str,
        replicas: Sequence[int] | None,
        index: int = 0,
        *,
        may_change: bool = True,
    ) -> tuple[Any, ...]:
        """Move a partition, or cancel its move."""
        target = None if replicas is None else [self.id(each) for each in replicas]
        return self.step(
            lambda _: AlterPartitionReassignmentsRequest(
                timeout_ms=10_000,
                allow_replication_factor_change=may_change,
                topics=[
                    ReassignableTopic(
                        name=self.topic(name),
                        partitions=[ReassignablePartition(partition_index=index, replicas=target)],
                    )
                ],
            ),
            1,
        )

    def elect(self, name: str, kind: int, *indexes: int) -> tuple[Any, ...]:
        """Elect leaders: 0 the preferred, 1 uncleanly."""
        return self.step(
            lambda _: ElectLeadersRequest(
                election_type=kind,
                topic_partitions=[
                    TopicPartitions(topic=self.topic(name), partitions=list(indexes or (0,)))
                ],
                timeout_ms=10_000,
            ),
            2,
        )

    def assign(self, broker: int, directory: bytes, name: str, *indexes: int) -> tuple[Any, ...]:
        """Assign replicas of a broker to a directory."""
        assert directory in RESERVED_DIRECTORIES or len(directory) == 16
        return self.step(
            lambda side: AssignReplicasToDirsRequest(
                broker_id=self.id(broker),
                broker_epoch=self.epoch(side, broker),
                directories=[
                    DirectoryDataRequest(
                        id=directory,
                        topics=[
                            AssignedTopic(
                                topic_id=self.topic_id(side, name),
                                partitions=[
                                    AssignedPartition(partition_index=index) for index in indexes
                                ],
                            )
                        ],
                    )
                ],
            ),
            0,
        )


def _in_order(records: list[Flat]) -> list[Flat]:
    """Sort successive changes of partitions, which Kafka writes in the order of a hash map."""
    ordered: list[Flat] = []
    for kind, group in itertools.groupby(records, key=lambda each: each[0]):
        each = list(group)
        if kind == "PartitionChangeRecord":
            each.sort(key=lambda flat: (flat[2]["topic_id"], flat[2]["partition_id"]))
        ordered += each
    return ordered


def features_of(levels: Mapping[str, tuple[int, int]]) -> list[Feature]:
    """Return features as values of a registration."""
    return [
        Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in levels.items()
    ]
