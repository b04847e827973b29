"""Adding partitions to topics, and the placement of new replicas on brokers.

Requests are CreatePartitions (API 37; KIP-195). The validation of new partitions, the placement of
their replicas, and their records are the same for new topics.

The placement is that of Kafka's ReplicaPlacer. Leaders are spread evenly over the live brokers, and
replicas over the racks (KIP-36). The partitions led by one broker have different brokers as second
replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from barnabas.controller.result import ControllerResult, Refusal
from barnabas.metadata.partition_registration import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    PartitionRegistration,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from barnabas.waiting.steps import count_gradually, gradually

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.broker_registration import BrokerRegistration
    from barnabas.metadata.image import ClusterImage
    from barnabas.protocol.messages.topics import CreatePartitionsTopic
    from barnabas.runtime.rng import Rng


_T = TypeVar("_T")


class UsableBroker(NamedTuple):
    """A broker that may be given replicas."""

    id: int
    rack: str | None
    # A fenced broker takes replicas only if live brokers do not suffice, and never the first one.
    fenced: bool


class PlacementSpec(NamedTuple):
    """The number of partitions and replicas to place."""

    partition_count: int
    replication_factor: int


class ReplicaPlacer(Protocol):
    """A placement strategy."""

    def place(self, spec: PlacementSpec, brokers: Sequence[UsableBroker]) -> list[list[int]]:
        """Return the replicas of each new partition, the preferred leader first.

        Raises:
            Refusal: INVALID_REPLICATION_FACTOR if there are not enough brokers.
        """
        ...


class StripedPlacer:
    """Takes the racks in turn, and the brokers of a rack in turn (StripedReplicaPlacer).

    Leaders are spread over the racks and over the live brokers of each rack. The replicas of a
    partition are spread over as many racks as possible. Within a rack, a fenced broker is taken
    only if no live broker is left.

    Each round starts one broker later, so that the same leader has other followers. For the same
    reason, all orders are shuffled after as many partitions as there are live brokers.
    """

    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def place(self, spec: PlacementSpec, brokers: Sequence[UsableBroker]) -> list[list[int]]:
        """Return the replicas of each new partition, the preferred leader first."""
        factor = spec.replication_factor
        if all(broker.fenced for broker in brokers):
            raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, "no broker is live")
        if len(brokers) < factor:
            raise Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {factor} exceeds the number of registered brokers, "
                f"{len(brokers)}",
            )
        racks = _Racks(brokers, self._rng)
        return [racks.place(factor) for _ in range(spec.partition_count)]


class _Ring:
    """Brokers in turn: a round returns each broker once, and the next round starts one later."""

    __slots__ = ("_brokers", "_offset", "_round", "_taken")

    def __init__(self, brokers: list[int], rng: Rng) -> None:
        self._brokers = sorted(brokers)
        self._offset = rng.randint(0, len(brokers) - 1) if brokers else 0
        self._round = 0
        self._taken = 0

    def next(self, turn: int) -> int | None:
        """Return the next broker of round `turn`; None after all brokers."""
        count = len(self._brokers)
        if count and turn != self._round:
            self._round = turn
            self._taken = 0
            self._offset = (self._offset + 1) % count
        if self._taken >= count:
            return None
        broker = self._brokers[(self._offset + self._taken) % count]
        self._taken += 1
        return broker

    def shuffle(self, rng: Rng) -> None:
        """Shuffle the order of the brokers."""
        _shuffle(self._brokers, rng)


class _Rack:
    """The brokers of one rack, or the brokers without a rack."""

    __slots__ = ("fenced", "live")

    def __init__(self, brokers: list[UsableBroker], rng: Rng) -> None:
        self.live = _Ring([broker.id for broker in brokers if not broker.fenced], rng)
        self.fenced = _Ring([broker.id for broker in brokers if broker.fenced], rng)

    def next(self, turn: int) -> int | None:
        """Return a live broker if one is left, otherwise a fenced one; None if none is left."""
        broker = self.live.next(turn)
        return self.fenced.next(turn) if broker is None else broker


class _Racks:
    """All racks in turn."""

    __slots__ = ("_first", "_live_count", "_racks", "_rng", "_turn")

    def __init__(self, brokers: Sequence[UsableBroker], rng: Rng) -> None:
        by_name: dict[str | None, list[UsableBroker]] = {}
        for broker in sorted(brokers, key=lambda each: (each.rack or "", each.id)):
            by_name.setdefault(broker.rack, []).append(broker)
        self._rng = rng
        self._racks = [_Rack(each, rng) for each in by_name.values()]
        self._live_count = sum(not broker.fenced for broker in brokers)
        # Index of the rack that gives the next partition its leader.
        self._first = rng.randint(0, len(self._racks) - 1)
        # Number of placed partitions.
        self._turn = 0

    def place(self, factor: int) -> list[int]:
        """Return the replicas of the next partition."""
        if self._turn and self._turn % self._live_count == 0:
            self._shuffle()
        count = len(self._racks)
        rack = self._first % count
        leader = self._racks[rack].live.next(self._turn)
        while leader is None:
            rack = (rack + 1) % count
            leader = self._racks[rack].live.next(self._turn)
        replicas = [leader]
        while len(replicas) < factor:
            rack = (rack + 1) % count
            broker = self._racks[rack].next(self._turn)
            if broker is not None:
                replicas.append(broker)
        self._turn += 1
        self._first = (self._first + 1) % count
        return replicas

    def _shuffle(self) -> None:
        _shuffle(self._racks, self._rng)
        for rack in self._racks:
            rack.live.shuffle(self._rng)
            rack.fenced.shuffle(self._rng)


def _shuffle(items: list[_T], rng: Rng) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = rng.randint(0, last)
        items[last], items[other] = items[other], items[last]


def is_live(broker: BrokerRegistration | None) -> bool:
    """Return whether a broker may lead and be in an ISR."""
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


class NewPartitions:
    """Creates partitions on the brokers of one image."""

    __slots__ = ("_image",)

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def place(self, placer: ReplicaPlacer, count: int, factor: int) -> list[list[int]]:
        """Return the replicas of `count` partitions, chosen by `placer`.

        Raises:
            Refusal: INVALID_REPLICATION_FACTOR.
        """
        brokers = [
            UsableBroker(broker.id, broker.rack, broker.fenced)
            for broker in self._image.brokers.values()
            if not broker.in_controlled_shutdown and not broker.is_cordoned
        ]
        return placer.place(PlacementSpec(count, factor), brokers)

    def check_assignments(
        self, assignments: Sequence[Sequence[int]], replication_factor: int | None
    ) -> None:
        """Raise Refusal for manually assigned replicas that are not possible.

        Args:
            assignments: replicas of each partition.
            replication_factor: required number of replicas; None to use that of the first
                partition.

        Raises:
            Refusal: INVALID_REPLICA_ASSIGNMENT.
        """
        for replicas in assignments:
            problem = self._problem_of(replicas, replication_factor)
            if problem is not None:
                raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
            replication_factor = len(replicas)

    def check_replicas(self, replicas: Sequence[int]) -> None:
        """Raise Refusal for replicas that a partition cannot have. They need not be live.

        Raises:
            Refusal: INVALID_REPLICA_ASSIGNMENT.
        """
        problem = self._wrong_brokers(replicas)
        if problem is not None:
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)

    def _wrong_brokers(self, replicas: Sequence[int]) -> str | None:
        if not replicas:
            return "a partition needs at least one replica"
        if len(set(replicas)) != len(replicas):
            return f"a broker occurs twice in replicas {list(replicas)}"
        for broker_id in replicas:
            broker = self._image.brokers.get(broker_id)
            if broker is None:
                return f"broker {broker_id} is not registered"
            if broker.is_cordoned:
                return f"all directories of broker {broker_id} are cordoned"
        return None

    def _problem_of(self, replicas: Sequence[int], replication_factor: int | None) -> str | None:
        wrong = self._wrong_brokers(replicas)
        if wrong is not None:
            return wrong
        if replication_factor is not None and len(replicas) != replication_factor:
            return (
                f"the number of replicas {list(replicas)} is not {replication_factor}, as for "
                "the other partitions"
            )
        if not any(is_live(self._image.brokers.get(broker_id)) for broker_id in replicas):
            return f"none of the brokers {list(replicas)} is live"
        return None

    def record(self, topic_id: bytes, partition: int, replicas: Sequence[int]) -> VersionedRecord:
        """Return the record of a partition. Live replicas form the ISR, and its first one leads."""
        brokers = self._image.brokers
        isr = tuple(replica for replica in replicas if is_live(brokers.get(replica)))
        registration = PartitionRegistration(
            replicas=tuple(replicas),
            directories=tuple(directory_on(brokers[replica]) for replica in replicas),
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
        )
        return registration.to_record(topic_id, partition, self._image.features.metadata_version)


def directory_on(broker: BrokerRegistration) -> bytes:
    """Return the directory of a new replica, as far as it is known (KIP-858)."""
    if len(broker.directories) == 1:
        return broker.directories[0]
    return DIRECTORY_UNASSIGNED if broker.directories else DIRECTORY_MIGRATING


_PARTITIONS_MAX = 10_000


class PartitionControl:
    """Handles requests for more partitions, and returns the resulting records."""

    def __init__(self, placer: ReplicaPlacer) -> None:
        self._placer = placer

    def create(
        self, view: ControllerView, request: CreatePartitionsRequest
    ) -> Generator[None, None, ControllerResult[CreatePartitionsResponse]]:
        """Add partitions up to the requested count, or only validate the request.

        Yields before each topic, and after each new partition.
        """
        times = yield from count_gradually(topic.name for topic in request.topics)
        once = [topic for topic in request.topics if times[topic.name] == 1]
        if _added(view.image, once) > _PARTITIONS_MAX:
            refusal = Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"a request may create at most {_PARTITIONS_MAX} partitions",
            )
            refused = yield from refuse_create_partitions(request, refusal)
            return ControllerResult([], refused)
        records: list[VersionedRecord] = []
        results: dict[str, CreatePartitionsTopicResult] = {}
        for topic in request.topics:
            yield
            if topic.name in results:
                continue
            try:
                if times[topic.name] > 1:
                    raise Refusal(
                        ErrorCode.INVALID_REQUEST, f"topic {topic.name} occurs more than once"
                    )
                added = yield from self._add(view.image, topic)
                view.take_mutations(len(added))
            except Refusal as refusal:
                results[topic.name] = _refused(topic.name, refusal)
                continue
            records += added
            results[topic.name] = CreatePartitionsTopicResult(
                name=topic.name, error_code=ErrorCode.NONE
            )
        if request.validate_only:
            records = []
        response = CreatePartitionsResponse(results=list(results.values()))
        return ControllerResult(records, response, at_once=not once)

    def _add(
        self, image: ClusterImage, wanted: CreatePartitionsTopic
    ) -> Generator[None, None, list[VersionedRecord]]:
        topic = image.topics.by_name(wanted.name)
        if topic is None:
            # Kafka sends no message with this error either.
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        current = len(topic.partitions)
        if wanted.count <= current:
            raise Refusal(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {wanted.name} already has {current} partitions; the request has "
                f"{wanted.count}",
            )
        added = wanted.count - current
        new = NewPartitions(image)
        factor = len(topic.partitions[0].replicas)
        if wanted.assignments is None:
            placed = new.place(self._placer, added, factor)
        else:
            placed = [list(each.broker_ids) for each in wanted.assignments]
            if len(placed) != added:
                raise Refusal(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"the request adds {added} partitions, but has {len(placed)} assignments",
                )
            new.check_assignments(placed, factor)
        records: list[VersionedRecord] = []
        for index, replicas in enumerate(placed):
            records.append(new.record(topic.id, current + index, replicas))
            yield
        return records


def _added(image: ClusterImage, topics: Sequence[CreatePartitionsTopic]) -> int:
    """Return the number of partitions that would be added to existing topics."""
    added = 0
    for wanted in topics:
        topic = image.topics.by_name(wanted.name)
        if topic is not None:
            added += max(0, wanted.count - len(topic.partitions))
    return added


def _refused(name: str, refusal: Refusal) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name, error_code=refusal.error_code, error_message=refusal.message or None
    )


def refuse_create_partitions(
    request: CreatePartitionsRequest, error: Refusal
) -> Generator[None, None, CreatePartitionsResponse]:
    """Make the error response for all topics of a request."""
    # As in Kafka, a topic that is named twice has two results.
    results = yield from gradually(_refused(topic.name, error) for topic in request.topics)
    return CreatePartitionsResponse(results=results)
