"""Adding partitions to topics (CreatePartitions API 37; KIP-195)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.result import ControllerResult, Refusal
from barnabas.controller.topics.new_partitions import NewPartitions
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from barnabas.waiting.steps import count_gradually, gradually

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.controller.topics.placement import ReplicaPlacer
    from barnabas.metadata.image import ClusterImage
    from barnabas.protocol.messages.create_partitions import CreatePartitionsTopic

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
