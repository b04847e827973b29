"""Changing configs of topics and brokers (IncrementalAlterConfigs API 44; KIP-339, KIP-226)."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import TYPE_CHECKING

from barnabas.controller.result import ControllerResult, Refusal
from barnabas.metadata.configs_image import ALL_BROKERS, BROKER, TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.records.clear_elr_record import ClearElrRecord
from barnabas.protocol.records.config_record import ConfigRecord
from barnabas.settings.definition import ConfigError, ConfigKey, ConfigType, DynamicMode
from barnabas.storage.config import TOPIC_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.controller.topic_configs import TopicConfigs
    from barnabas.metadata.image import ClusterImage
    from barnabas.protocol.messages.incremental_alter_configs import AlterableConfig

_MIN_INSYNC_REPLICAS = "min.insync.replicas"
_MANY_TIMES = "the resource is named more than once"


class ConfigOperation(IntEnum):
    """What to do with a key; the numbers are Kafka's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigControl:
    """Turns changes of configs into records."""

    def __init__(self, config: ControllerConfig, topic_configs: TopicConfigs) -> None:
        self._config = config
        self._topic_configs = topic_configs

    def alter(
        self, view: ControllerView, request: IncrementalAlterConfigsRequest
    ) -> ControllerResult[IncrementalAlterConfigsResponse]:
        """Change each resource as a whole or not at all, or only check whether that would work."""
        times = Counter((each.resource_type, each.resource_name) for each in request.resources)
        records: list[VersionedRecord] = []
        responses: list[AlterConfigsResourceResponse] = []
        answered: set[tuple[int, str]] = set()
        for resource in request.resources:
            where = (resource.resource_type, resource.resource_name)
            if where in answered:
                continue
            answered.add(where)
            try:
                if times[where] > 1:
                    raise Refusal(ErrorCode.INVALID_REQUEST, _MANY_TIMES)
                changed = self._alter_one(view.image, resource)
            except Refusal as refusal:
                responses.append(_answer(resource, refusal.error_code, refusal.message))
                continue
            if not request.validate_only:
                records += changed
            responses.append(_answer(resource, ErrorCode.NONE, None))
        return ControllerResult(records, IncrementalAlterConfigsResponse(responses=responses))

    def _alter_one(
        self, image: ClusterImage, resource: AlterConfigsResource
    ) -> list[VersionedRecord]:
        kind, name = resource.resource_type, resource.resource_name
        self._check_exists(image, kind, name)
        names = Counter(each.name for each in resource.configs)
        twice = [key for key, count in names.items() if count > 1]
        if twice:
            raise Refusal(
                ErrorCode.INVALID_REQUEST, f"named more than once: {', '.join(sorted(twice))}"
            )
        current = image.configs.get(kind, name)
        changes = {
            each.name: self._changed(image, resource, each, current) for each in resource.configs
        }
        given = {key: value for key, value in changes.items() if value is not None}
        if kind == TOPIC:
            self._topic_configs.check(name, given)
        else:
            self._check_broker(name, changes)
        records: list[VersionedRecord] = [
            (ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value), 0)
            for key, value in changes.items()
            if current.get(key) != value
        ]
        if image.features.is_elr_enabled and any(
            isinstance(record, ConfigRecord) and record.name == _MIN_INSYNC_REPLICAS
            for record, _ in records
        ):
            # Who was eligible under the old minimum may not be under the new one.
            records += _cleared_elr(image, name if kind == TOPIC else "")
        return records

    def _check_exists(self, image: ClusterImage, kind: int, name: str) -> None:
        if kind == TOPIC:
            if image.topics.by_name(name) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise Refusal(error, error.message)
        elif kind != BROKER:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"configs of resource type {kind} cannot be changed; 2 (topic) and 4 (broker) can",
            )
        elif name != ALL_BROKERS:
            if not (name.isascii() and name.isdigit()):
                raise Refusal(
                    ErrorCode.INVALID_REQUEST, f"a broker is named by its number, not {name!r}"
                )
            if int(name) not in image.brokers:
                raise Refusal(
                    ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {name} is not registered"
                )

    def _changed(
        self,
        image: ClusterImage,
        resource: AlterConfigsResource,
        change: AlterableConfig,
        current: Mapping[str, str],
    ) -> str | None:
        """The value of one key afterwards; None for none."""
        operation = change.config_operation
        if operation == ConfigOperation.DELETE:
            return None
        if operation not in tuple(ConfigOperation):
            raise Refusal(ErrorCode.INVALID_REQUEST, f"unknown operation {operation}")
        if change.value is None:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{change.name} needs a value")
        if operation == ConfigOperation.SET:
            return change.value
        key = self._key(resource.resource_type, change.name)
        if key is None or key.type is not ConfigType.LIST:
            raise Refusal(
                ErrorCode.INVALID_CONFIG,
                f"{change.name} is no list: nothing can be appended to it or subtracted from it",
            )
        before = current.get(change.name)
        if before is None:
            before = self._default(image, resource, key)
        parts = [part for part in before.split(",") if part]
        named = [part.strip() for part in change.value.split(",") if part.strip()]
        if operation == ConfigOperation.APPEND:
            parts += [part for part in named if part not in parts]
        else:
            parts = [part for part in parts if part not in named]
        return ",".join(parts)

    def _key(self, kind: int, name: str) -> ConfigKey | None:
        definition = TOPIC_CONFIGS if kind == TOPIC else self._config.broker.definition
        return definition.get(name)

    def _default(self, image: ClusterImage, resource: AlterConfigsResource, key: ConfigKey) -> str:
        if resource.resource_type == TOPIC:
            return self._topic_configs.value(image, resource.resource_name, key.name) or ""
        return self._config.broker.text(key.name) or ""

    def _check_broker(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Refuse keys that cannot change while the broker runs, and values out of range."""
        for key_name, value in changes.items():
            key = self._config.broker.definition.get(key_name)
            if key is None:
                # Kafka keeps keys it does not know, for plug-ins.
                continue
            if key.mode is DynamicMode.READ_ONLY:
                raise Refusal(
                    ErrorCode.INVALID_REQUEST,
                    f"{key_name} cannot change while the broker runs; set it in the properties"
                    " and start again",
                )
            if key.mode is DynamicMode.PER_BROKER and name == ALL_BROKERS:
                raise Refusal(
                    ErrorCode.INVALID_REQUEST, f"{key_name} can only be set on one broker"
                )
            if value is not None:
                try:
                    key.parse(value)
                except ConfigError as error:
                    raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from error


def _cleared_elr(image: ClusterImage, topic_name: str) -> list[VersionedRecord]:
    topics = [image.topics.by_name(topic_name)] if topic_name else image.topics
    kept = any(
        registration.elr or registration.last_known_elr
        for topic in topics
        if topic is not None
        for registration in topic.partitions.values()
    )
    return [(ClearElrRecord(topic_name=topic_name), 0)] if kept else []


def _answer(
    resource: AlterConfigsResource, error: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def refuse_alter_configs(
    request: IncrementalAlterConfigsRequest, error: Refusal
) -> IncrementalAlterConfigsResponse:
    """The response when nothing could be done."""
    return IncrementalAlterConfigsResponse(
        responses=[_answer(each, error.error_code, error.message) for each in request.resources]
    )
