"""Adding partitions to topics: the checks and records of new partitions.

Requests are CreatePartitions (API 37; KIP-195). The validation of new partitions, the placement of
their replicas, and their records are the same for new topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.partitions.placement import PlacementSpec, UsableBroker
from barnabas.controller.result import ControllerResult, Refusal
from barnabas.metadata.machines import machine_of
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

    from barnabas.controller.partitions.placement import ReplicaPlacer
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.broker_registration import BrokerRegistration
    from barnabas.metadata.image import ClusterImage
    from barnabas.protocol.messages.topics import CreatePartitionsTopic


def is_live(broker: BrokerRegistration | None) -> bool:
    """Return whether a broker may lead and be in an ISR."""
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


class NewPartitions:
    """Creates partitions on the brokers of one image."""

    __slots__ = ("_image",)

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def place(
        self, placer: ReplicaPlacer, count: int, factor: int
    ) -> Generator[None, None, list[list[int]]]:
        """Return the replicas of `count` partitions, chosen by `placer`; yields after each one.

        Raises:
            Refusal: INVALID_REPLICATION_FACTOR.
        """
        brokers = [
            UsableBroker(broker.id, broker.rack, broker.fenced, machine_of(broker))
            for broker in self._image.brokers.values()
            if not broker.in_controlled_shutdown and not broker.is_cordoned
        ]
        return (yield from gradually(placer.place(PlacementSpec(count, factor), brokers)))

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
            placed = yield from new.place(self._placer, added, factor)
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
