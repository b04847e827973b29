"""Creating and deleting topics (CreateTopics API 19, DeleteTopics API 20; KIP-4, KIP-464, KIP-525).

Each topic is refused or created by itself: one that is refused never fails its neighbours.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.controller.new_partitions import NewPartitions
from barnabas.controller.result import ControllerResult, Refusal
from barnabas.controller.topic_names import colliding, problem_of
from barnabas.metadata.configs_image import TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from barnabas.protocol.records.config_record import ConfigRecord
from barnabas.protocol.records.remove_topic_record import RemoveTopicRecord
from barnabas.protocol.records.topic_record import TopicRecord
from barnabas.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.placement import ReplicaPlacer
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.controller.topic_configs import TopicConfigs
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.topics_image import TopicImage
    from barnabas.protocol.messages.create_topics import CreatableTopic
    from barnabas.runtime.rng import Rng

# Kafka's limit: more would not fit one batch of records.
_PARTITIONS_MAX = 10_000
_SAY_NOTHING = -1


class TopicControl:
    """Turns requests about topics into records."""

    def __init__(
        self, config: ControllerConfig, configs: TopicConfigs, placer: ReplicaPlacer, rng: Rng
    ) -> None:
        self._config = config
        self._configs = configs
        self._placer = placer
        self._rng = rng

    # -- creating ---------------------------------------------------------------------------------

    def create(
        self, view: ControllerView, request: CreateTopicsRequest
    ) -> ControllerResult[CreateTopicsResponse]:
        """Create topics with configs and partitions, or only check whether that would work."""
        times = Counter(topic.name for topic in request.topics)
        records: list[VersionedRecord] = []
        results: dict[str, CreatableTopicResult] = {}
        partitions = 0
        for topic in request.topics:
            if topic.name in results:
                continue
            try:
                if times[topic.name] > 1:
                    raise Refusal(
                        ErrorCode.INVALID_REQUEST, f"topic {topic.name} is named more than once"
                    )
                made = self._create_one(view.image, topic, list(results))
                partitions += made[1].num_partitions
                if partitions > _PARTITIONS_MAX:
                    raise Refusal(
                        ErrorCode.POLICY_VIOLATION,
                        f"one request may create {_PARTITIONS_MAX} partitions",
                    )
                view.take_mutations(made[1].num_partitions)
            except Refusal as refusal:
                results[topic.name] = _not_created(topic.name, refusal)
                continue
            results[topic.name] = made[1]
            if not request.validate_only:
                records += made[0]
        return ControllerResult(records, CreateTopicsResponse(topics=list(results.values())))

    def _create_one(
        self, image: ClusterImage, topic: CreatableTopic, created: list[str]
    ) -> tuple[list[VersionedRecord], CreatableTopicResult]:
        self._check_name(image, topic.name, created)
        configs = self._own_configs(topic)
        new = NewPartitions(image)
        placed = self._place(new, topic)
        topic_id = self._rng.uuid()
        records: list[VersionedRecord] = [(TopicRecord(name=topic.name, topic_id=topic_id), 0)]
        records += [
            (
                ConfigRecord(resource_type=TOPIC, resource_name=topic.name, name=name, value=value),
                0,
            )
            for name, value in configs.items()
        ]
        records += [
            new.record(topic_id, partition, replicas) for partition, replicas in enumerate(placed)
        ]
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

    def _check_name(self, image: ClusterImage, name: str, created: list[str]) -> None:
        problem = problem_of(name)
        if problem is not None:
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if image.topics.by_name(name) is not None:
            raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
        other = colliding(name, image.topics.names()) or colliding(name, created)
        if other is not None:
            raise Refusal(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name} differs from topic {other} only in '.' and '_', which metrics"
                " cannot tell apart",
            )

    def _own_configs(self, topic: CreatableTopic) -> dict[str, str]:
        given: dict[str, str | None] = {}
        for each in topic.configs:
            if each.name in given:
                raise Refusal(ErrorCode.INVALID_CONFIG, f"{each.name} is given more than once")
            given[each.name] = each.value
        self._configs.check(given)
        return {name: value for name, value in given.items() if value is not None}

    def _place(self, new: NewPartitions, topic: CreatableTopic) -> list[list[int]]:
        """Replicas of each partition, as assigned or chosen."""
        if topic.assignments:
            return _assigned(new, topic)
        count = topic.num_partitions
        factor = topic.replication_factor
        if count == _SAY_NOTHING:
            count = self._config.num_partitions
        if factor == _SAY_NOTHING:
            factor = self._config.default_replication_factor
        if count <= 0:
            raise Refusal(
                ErrorCode.INVALID_PARTITIONS, f"a topic needs at least 1 partition, not {count}"
            )
        if count > _PARTITIONS_MAX:
            raise Refusal(
                ErrorCode.POLICY_VIOLATION, f"one request may create {_PARTITIONS_MAX} partitions"
            )
        if factor <= 0:
            raise Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"a partition needs at least 1 replica, not {factor}",
            )
        return new.place(self._placer, count, factor)

    # -- deleting ---------------------------------------------------------------------------------

    def delete(
        self, view: ControllerView, request: DeleteTopicsRequest
    ) -> ControllerResult[DeleteTopicsResponse]:
        """Delete topics, each by name or by id."""
        named = _named(request)
        found = [self._find(view.image, name, topic_id) for name, topic_id in named]
        times = Counter(each.id for each in found if not isinstance(each, Refusal))
        records: list[VersionedRecord] = []
        results: list[DeletableTopicResult] = []
        for (name, topic_id), topic in zip(named, found, strict=True):
            if isinstance(topic, Refusal):
                results.append(_not_deleted(name, topic_id, topic))
            elif times[topic.id] > 1:
                refusal = Refusal(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
                results.append(_not_deleted(name, topic_id, refusal))
            else:
                try:
                    view.take_mutations(len(topic.partitions))
                except Refusal as refusal:
                    results.append(_not_deleted(name, topic_id, refusal))
                    continue
                records.append((RemoveTopicRecord(topic_id=topic.id), 0))
                results.append(
                    DeletableTopicResult(
                        name=topic.name, topic_id=topic.id, error_code=ErrorCode.NONE
                    )
                )
        return ControllerResult(records, DeleteTopicsResponse(responses=results))

    def _find(self, image: ClusterImage, name: str | None, topic_id: bytes) -> TopicImage | Refusal:
        if not self._config.delete_topic_enable:
            return Refusal(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        if name is not None and topic_id != ZERO_UUID:
            return Refusal(ErrorCode.INVALID_REQUEST, "give the topic's name or its id, not both")
        if name is not None:
            topic = image.topics.by_name(name)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif topic_id == ZERO_UUID:
            return Refusal(ErrorCode.INVALID_REQUEST, "neither a name nor an id is given")
        else:
            topic = image.topics.by_id(topic_id)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        return Refusal(unknown, unknown.message) if topic is None else topic


def _assigned(new: NewPartitions, topic: CreatableTopic) -> list[list[int]]:
    if topic.replication_factor != _SAY_NOTHING:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "with replicas assigned by hand the replication factor has to be -1",
        )
    if topic.num_partitions != _SAY_NOTHING:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "with replicas assigned by hand the number of partitions has to be -1",
        )
    by_partition = {each.partition_index: each.broker_ids for each in topic.assignments}
    count = len(topic.assignments)
    if sorted(by_partition) != list(range(count)):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{count} partitions have to be numbered 0 to {count - 1}, each once",
        )
    placed = [list(by_partition[partition]) for partition in range(count)]
    new.check_assignments(placed, replication_factor=None)
    return placed


def _not_created(name: str, refusal: Refusal) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=refusal.error_code, error_message=refusal.message
    )


def _named(request: DeleteTopicsRequest) -> list[tuple[str | None, bytes]]:
    """What is to be deleted: names up to version 5, then a name or an id, the other one absent."""
    named: list[tuple[str | None, bytes]] = [(name, ZERO_UUID) for name in request.topic_names]
    return named + [(each.name, each.topic_id) for each in request.topics]


def _not_deleted(name: str | None, topic_id: bytes, refusal: Refusal) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=refusal.error_code,
        error_message=refusal.message,
    )


def refuse_create_topics(request: CreateTopicsRequest, error: Refusal) -> CreateTopicsResponse:
    """The response when nothing could be done."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(topics=[_not_created(name, error) for name in names])


def refuse_delete_topics(request: DeleteTopicsRequest, error: Refusal) -> DeleteTopicsResponse:
    """The response when nothing could be done."""
    return DeleteTopicsResponse(
        responses=[_not_deleted(name, topic_id, error) for name, topic_id in _named(request)]
    )
