"""Creating and deleting topics (CreateTopics API 19, DeleteTopics API 20; KIP-4, KIP-464, KIP-525).

Each topic is handled by itself: a refused topic does not affect the other topics of a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.partitions.new_partitions import NewPartitions
from barnabas.controller.remote_rules import check_metadata_is_unused
from barnabas.controller.result import ControllerResult, Refusal
from barnabas.controller.topic_names import METADATA_TOPIC, colliding, problem_of
from barnabas.metadata.configs_image import TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from barnabas.protocol.records.topics import (
    ClearElrRecord,
    ConfigRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas.protocol.schema import ZERO_UUID
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC, SYSTEM_ENABLE
from barnabas.waiting.steps import count_gradually, gradually

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.config_rules import TopicConfigs
    from barnabas.controller.partitions.placement import ReplicaPlacer
    from barnabas.controller.policy_checks import PolicyChecks
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.topics import TopicImage
    from barnabas.protocol.messages.topics import CreatableTopic
    from barnabas.runtime.rng import Rng


# Kafka's limits of one request: partitions and records.
_PARTITIONS_MAX = 10_000
_RECORDS_MAX = 10_000
_TOO_MANY = Refusal(
    ErrorCode.POLICY_VIOLATION,
    f"a request may create at most {_PARTITIONS_MAX} partitions "
    f"and {_RECORDS_MAX} metadata records",
)
_BROKER_DEFAULT = -1
_MIN_INSYNC_REPLICAS = "min.insync.replicas"


class TopicControl:
    """Handles requests to create and delete topics, and returns the resulting records."""

    def __init__(
        self,
        config: ControllerConfig,
        configs: TopicConfigs,
        placer: ReplicaPlacer,
        rng: Rng,
        policies: PolicyChecks,
    ) -> None:
        # Number of partitions of a topic that is created without a number.
        self._partitions_default = config.broker.integer("num.partitions")
        self._config = config
        self._is_tier_enabled = config.broker.boolean(SYSTEM_ENABLE)
        self._configs = configs
        self._placer = placer
        self._rng = rng
        self._policies = policies

    # -- creation ----------------------------------------------------------------------------------

    def create(
        self, view: ControllerView, request: CreateTopicsRequest
    ) -> Generator[None, None, ControllerResult[CreateTopicsResponse]]:
        """Create topics with configs and partitions, or only validate the request.

        Yields before each topic, and after each new partition.
        """
        times = yield from count_gradually(topic.name for topic in request.topics)
        if (yield from self._count(request.topics, times)) > _PARTITIONS_MAX:
            return ControllerResult([], (yield from refuse_create_topics(request, _TOO_MANY)))
        records: list[VersionedRecord] = []
        results: dict[str, CreatableTopicResult] = {}
        for topic in request.topics:
            yield
            if topic.name in results:
                continue
            try:
                if times[topic.name] > 1:
                    raise Refusal(
                        ErrorCode.INVALID_REQUEST, f"topic {topic.name} occurs more than once"
                    )
                made = yield from self._create_one(view.image, topic)
                view.take_mutations(made[1].num_partitions)
            except Refusal as refusal:
                results[topic.name] = _not_created(topic.name, refusal)
                continue
            results[topic.name] = made[1]
            records += made[0]
        if len(records) > _RECORDS_MAX:
            return ControllerResult([], (yield from refuse_create_topics(request, _TOO_MANY)))
        response = CreateTopicsResponse(topics=list(results.values()))
        return ControllerResult(
            [] if request.validate_only else records, response, at_once=1 not in times.values()
        )

    def _count(
        self, topics: Sequence[CreatableTopic], times: dict[str, int]
    ) -> Generator[None, None, int]:
        """Return the number of partitions of the topics that are named exactly once."""
        total = 0
        for topic in topics:
            yield
            if times[topic.name] > 1:
                continue
            count = len(topic.assignments) or topic.num_partitions
            total += self._partitions_default if count == _BROKER_DEFAULT else max(0, count)
        return total

    def _create_one(
        self, image: ClusterImage, topic: CreatableTopic
    ) -> Generator[None, None, tuple[list[VersionedRecord], CreatableTopicResult]]:
        _check_name(image, topic.name)
        configs = self._own_configs(topic)
        if configs:
            # As in Kafka, the configs of a new topic are changes for the other policy.
            self._policies.check_configs((TOPIC, topic.name), configs)
        new = NewPartitions(image)
        placed = yield from self._place(new, topic)
        self._policies.check_topic(topic, placed, configs)
        yield
        topic_id = self._rng.uuid()
        records: list[VersionedRecord] = [(TopicRecord(name=topic.name, topic_id=topic_id), 0)]
        records += [
            (ConfigRecord(resource_type=TOPIC, resource_name=topic.name, name=name, value=value), 0)
            for name, value in configs.items()
        ]
        if image.features.is_elr_enabled and _MIN_INSYNC_REPLICAS in configs:
            # No replica is in the ELR yet, but Kafka writes this record too.
            records.append((ClearElrRecord(topic_name=topic.name), 0))
        for partition, replicas in enumerate(placed):
            records.append(new.record(topic_id, partition, replicas))
            yield
        shown = [
            CreatableTopicConfigs(
                name=each.key.name,
                value=each.value,
                read_only=False,
                config_source=each.source,
                is_sensitive=each.key.sensitive,
            )
            for each in self._configs.effective(image, configs)
        ]
        result = CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_code=ErrorCode.NONE,
            error_message=None,
            num_partitions=len(placed),
            replication_factor=len(placed[0]),
            configs=shown,
        )
        return records, result

    def _own_configs(self, topic: CreatableTopic) -> dict[str, str]:
        without = [each.name for each in topic.configs if each.value is None]
        if without:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"{', '.join(without)} requires a value")
        # If a key is given more than once, the last value counts.
        given = {each.name: each.value for each in topic.configs if each.value is not None}
        self._configs.check(given)
        return given

    def _place(
        self, new: NewPartitions, topic: CreatableTopic
    ) -> Generator[None, None, list[list[int]]]:
        """Return the replicas of each partition, as assigned by the request or placed here."""
        if topic.assignments:
            return _assigned(new, topic)
        count = topic.num_partitions
        factor = topic.replication_factor
        if count == _BROKER_DEFAULT:
            count = self._partitions_default
        if factor == _BROKER_DEFAULT:
            factor = self._config.broker.integer("default.replication.factor")
        if factor <= 0:
            raise Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the replication factor must be at least 1, not {factor}",
            )
        if count <= 0:
            raise Refusal(
                ErrorCode.INVALID_PARTITIONS,
                f"the number of partitions must be at least 1, not {count}",
            )
        return (yield from new.place(self._placer, count, factor))

    # -- deletion ----------------------------------------------------------------------------------

    def delete(
        self, view: ControllerView, request: DeleteTopicsRequest
    ) -> Generator[None, None, ControllerResult[DeleteTopicsResponse]]:
        """Delete topics by name or by id; yields before each topic."""
        if not self._config.broker.boolean("delete.topic.enable"):
            refusal = Refusal(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
            return ControllerResult([], (yield from refuse_delete_topics(request, refusal)))
        records: list[VersionedRecord] = []
        results: list[DeletableTopicResult] = []
        times = yield from count_gradually(_named(request))
        named = yield from _wanted(view.image, times)
        for wanted, found in named:
            yield
            try:
                topic = _topic_or_raise(found)
                if topic.name == REMOTE_LOG_TOPIC and self._is_tier_enabled:
                    check_metadata_is_unused(view.image)
                view.take_mutations(len(topic.partitions))
            except Refusal as refusal:
                results.append(_not_deleted(wanted, refusal))
                continue
            records.append((RemoveTopicRecord(topic_id=topic.id), 0))
            results.append(
                DeletableTopicResult(name=topic.name, topic_id=topic.id, error_code=ErrorCode.NONE)
            )
        at_once = all(_is_invalid(each) or count > 1 for each, count in times.items())
        return ControllerResult(records, DeleteTopicsResponse(responses=results), at_once=at_once)


# A topic as the request names it: by name (with the zero id) or by id.
Wanted = tuple[str | None, bytes]


def _named(request: DeleteTopicsRequest) -> Iterator[Wanted]:
    for name in request.topic_names:
        yield name, ZERO_UUID
    for each in request.topics:
        yield each.name, each.topic_id


def _is_invalid(wanted: Wanted) -> bool:
    """Return whether both a name and an id are given, or neither."""
    name, topic_id = wanted
    return (name is None) == (topic_id == ZERO_UUID)


def _wanted(
    image: ClusterImage, times: dict[Wanted, int]
) -> Generator[None, None, list[tuple[Wanted, TopicImage | Refusal]]]:
    """Return each named topic with its image, or with the reason why it cannot be deleted.

    A topic is in the result once, except for invalid names, which have one result each time.
    """
    by_id = {topic_id for name, topic_id in times if name is None and topic_id != ZERO_UUID}
    doubly: set[bytes] = set()
    found: list[tuple[Wanted, TopicImage | Refusal]] = []
    for wanted, count in times.items():
        yield
        topic = _find(image, wanted, count)
        if wanted[0] is not None and not isinstance(topic, Refusal) and topic.id in by_id:
            doubly.add(topic.id)
            refusal = Refusal(
                ErrorCode.INVALID_REQUEST, "the request also contains the id of the topic"
            )
            found.append(((topic.name, topic.id), refusal))
        else:
            found += [(wanted, topic)] * (count if _is_invalid(wanted) else 1)
    # A topic named by both name and id is refused under its name. Its id has a result only if the
    # id has an error of its own.
    return [
        (each, topic)
        for each, topic in found
        if each[0] is not None or each[1] not in doubly or isinstance(topic, Refusal)
    ]


def _find(image: ClusterImage, wanted: Wanted, times: int) -> TopicImage | Refusal:
    name, topic_id = wanted
    if _is_invalid(wanted):
        return Refusal(
            ErrorCode.INVALID_REQUEST, "give either the topic's name or its id, not both"
        )
    if times > 1:
        return Refusal(ErrorCode.INVALID_REQUEST, "the topic occurs more than once")
    if name is not None:
        topic = image.topics.by_name(name)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        topic = image.topics.by_id(topic_id)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
    return Refusal(unknown, unknown.message) if topic is None else topic


def _topic_or_raise(found: TopicImage | Refusal) -> TopicImage:
    if isinstance(found, Refusal):
        # A new exception, because the stored one's traceback would refer to the frame with all
        # results.
        raise Refusal(found.error_code, found.message)
    return found


def _check_name(image: ClusterImage, name: str) -> None:
    problem = problem_of(name)
    if problem is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name == METADATA_TOPIC:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{name} is the metadata log and not a topic")
    if image.topics.by_name(name) is not None:
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
    # As in Kafka, the new topics of one request are not compared with each other.
    other = colliding(name, image.topics.names())
    if other is not None:
        raise Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name} differs from topic {other} only in '.' and '_', which metrics "
            "cannot distinguish",
        )


def _assigned(new: NewPartitions, topic: CreatableTopic) -> list[list[int]]:
    if topic.replication_factor != _BROKER_DEFAULT:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, "with assigned replicas, the replication factor must be -1"
        )
    if topic.num_partitions != _BROKER_DEFAULT:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, "with assigned replicas, the number of partitions must be -1"
        )
    by_partition = {each.partition_index: each.broker_ids for each in topic.assignments}
    count = len(topic.assignments)
    if sorted(by_partition) != list(range(count)):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the {count} partitions must have the numbers 0 to {count - 1}",
        )
    placed = [list(by_partition[partition]) for partition in range(count)]
    new.check_assignments(placed, replication_factor=None)
    return placed


def _not_created(name: str, refusal: Refusal) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=refusal.error_code, error_message=refusal.message or None
    )


def _not_deleted(wanted: Wanted, refusal: Refusal) -> DeletableTopicResult:
    name, topic_id = wanted
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=refusal.error_code,
        error_message=refusal.message or None,
    )


def refuse_create_topics(
    request: CreateTopicsRequest, error: Refusal
) -> Generator[None, None, CreateTopicsResponse]:
    """Make the error response for all topics of a request."""
    # As in Kafka, a topic that is named twice has two results.
    topics = yield from gradually(_not_created(topic.name, error) for topic in request.topics)
    return CreateTopicsResponse(topics=topics)


def refuse_delete_topics(
    request: DeleteTopicsRequest, error: Refusal
) -> Generator[None, None, DeleteTopicsResponse]:
    """Make the error response for all topics of a request."""
    responses = yield from gradually(_not_deleted(wanted, error) for wanted in _named(request))
    return DeleteTopicsResponse(responses=responses)
