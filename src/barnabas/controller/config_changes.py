"""Changing configs (IncrementalAlterConfigs API 44, AlterConfigs API 33; KIP-339, KIP-226).

The changes of a resource are applied together or refused together. The metadata log holds configs
of topics, brokers, client metrics subscriptions and groups. Each broker keeps its log levels
itself; they never reach the controller, but change by the same operations.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from barnabas.controller.config_rules import ConfigRules, check_kind
from barnabas.controller.result import ControllerResult, Refusal
from barnabas.metadata.configs_image import BROKER, TOPIC, merge_configs
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse as LegacyResourceResponse,
    AlterConfigsResponse,
)
from barnabas.protocol.messages.configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.primitives import STRING_BYTES_MAX
from barnabas.protocol.records.topics import ClearElrRecord, ConfigRecord
from barnabas.settings.key import ConfigType
from barnabas.waiting.steps import count_gradually, gradually

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.config_rules import TopicConfigs
    from barnabas.controller.policy_checks import PolicyChecks
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.image import ClusterImage
    from barnabas.protocol.messages.alter_configs import AlterConfigsResource as LegacyResource
    from barnabas.settings.key import ConfigKey

    Resource = TypeVar("Resource", AlterConfigsResource, LegacyResource)

    Result = TypeVar("Result", AlterConfigsResourceResponse, LegacyResourceResponse)


class ConfigOperation(IntEnum):
    """The operation on a key; the numbers are Kafka's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def changed_value(
    name: str, operation: int, operand: str | None, key: ConfigKey | None, before: str | None
) -> str | None:
    """Return the value of one key after an operation; None if the key has no value then.

    Args:
        name: the name of the key.
        operation: the number of a ConfigOperation.
        operand: the value to set, append or subtract.
        key: the definition of the key; None if it is unknown.
        before: the current value; None if the key has no value.

    Raises:
        Refusal: INVALID_REQUEST for an unknown operation or a missing value; INVALID_CONFIG for a
            key that is not a list, or a list that would exceed the size limit of a record.
    """
    if operation == ConfigOperation.DELETE:
        return None
    if operation not in tuple(ConfigOperation):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"unknown operation {operation}")
    if operand is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{name} requires a value")
    if operation == ConfigOperation.SET:
        return operand
    if key is None or key.type is not ConfigType.LIST:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"{name} is not a list: values cannot be appended to it or subtracted from it",
        )
    parts = [part for part in (before or "").split(",") if part]
    named = [part.strip() for part in operand.split(",") if part.strip()]
    if operation == ConfigOperation.APPEND:
        parts += [part for part in dict.fromkeys(named) if part not in parts]
    else:
        parts = [part for part in parts if part not in named]
    value = ",".join(parts)
    if len(value.encode()) > STRING_BYTES_MAX:
        # The message is the same as in Kafka.
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of"
            f" {STRING_BYTES_MAX} bytes.",
        )
    return value


_MIN_INSYNC_REPLICAS = "min.insync.replicas"
_MANY_TIMES = "a resource occurs more than once"
_KEY_MANY_TIMES = "a config occurs more than once"


class ConfigControl:
    """Handles changes of configs and returns the resulting records."""

    def __init__(
        self, config: ControllerConfig, topic_configs: TopicConfigs, policies: PolicyChecks
    ) -> None:
        self._topic_configs = topic_configs
        self._policies = policies
        self._rules = ConfigRules(config.broker, topic_configs)

    def alter_incrementally(
        self, view: ControllerView, request: IncrementalAlterConfigsRequest
    ) -> Generator[None, None, ControllerResult[IncrementalAlterConfigsResponse]]:
        """Change single keys, or only validate the request; yields before each resource."""
        records, responses = yield from self._alter(
            view.image, request.resources, self._increments, AlterConfigsResourceResponse
        )
        response = IncrementalAlterConfigsResponse(responses=responses)
        return ControllerResult([] if request.validate_only else records, response)

    def alter(
        self, view: ControllerView, request: AlterConfigsRequest
    ) -> Generator[None, None, ControllerResult[AlterConfigsResponse]]:
        """Replace all configs of each resource by the named ones; yields before each resource."""
        records, responses = yield from self._alter(
            view.image, request.resources, _replacement, LegacyResourceResponse
        )
        response = AlterConfigsResponse(responses=responses)
        return ControllerResult([] if request.validate_only else records, response)

    def _alter(
        self,
        image: ClusterImage,
        resources: Sequence[Resource],
        changes_of: Callable[[ClusterImage, Resource], dict[str, str | None]],
        result_class: type[Result],
    ) -> Generator[None, None, tuple[list[VersionedRecord], list[Result]]]:
        """Return the records of all valid changes, and a response for each resource.

        Args:
            image: the cluster before the changes.
            resources: the resources of the request.
            changes_of: returns the new value of each changed key of a resource; None for a removal.
            result_class: the API's response class for a resource.
        """
        times = yield from count_gradually(
            (each.resource_type, each.resource_name) for each in resources
        )
        records: list[VersionedRecord] = []
        results: list[Result] = []
        for resource in resources:
            yield
            where = (resource.resource_type, resource.resource_name)
            try:
                named = [each.name for each in resource.configs]
                _refuse_duplicates(times[where] > 1, named)
                check_kind(resource.resource_type)
                records += self._records(image, where, named, changes_of(image, resource))
                results.append(_result(result_class, resource, ErrorCode.NONE, None))
            except Refusal as refusal:
                results.append(_result(result_class, resource, refusal.error_code, refusal.message))
        return records, results

    def _increments(
        self, image: ClusterImage, resource: AlterConfigsResource
    ) -> dict[str, str | None]:
        """Return the new value of each key that the request names; None for a removal."""
        kind, name = resource.resource_type, resource.resource_name
        current = image.configs.get(kind, name)
        changes: dict[str, str | None] = {}
        for each in resource.configs:
            before = current.get(each.name)
            if before is None:
                before = self._default(image, kind, name, each.name)
            key = self._rules.splittable_key(kind, each.name)
            changes[each.name] = changed_value(
                each.name, each.config_operation, each.value, key, before
            )
        return changes

    def _default(self, image: ClusterImage, kind: int, resource: str, name: str) -> str | None:
        """Return the value of a key that the resource itself does not set."""
        key = self._rules.key(kind, name)
        if key is None:
            return None
        if kind == TOPIC:
            return self._topic_configs.value(image, resource, name)
        return self._rules.default(kind, key)

    def _records(
        self,
        image: ClusterImage,
        resource: tuple[int, str],
        named: Sequence[str],
        changes: Mapping[str, str | None],
    ) -> list[VersionedRecord]:
        """Return the records for the changes; raises Refusal for invalid changes.

        Args:
            image: the cluster before the changes.
            resource: type and name.
            named: the keys that the request names. AlterConfigs also removes others.
            changes: the new value of each changed key; None for a removal.
        """
        kind, name = resource
        current = image.configs.get(kind, name)
        self._rules.check(image, resource, changes, merge_configs(current, changes))
        changed = {key: value for key, value in changes.items() if current.get(key) != value}
        # Unchanged keys of a broker get records, too: it then reads its key stores again.
        written = changes if kind == BROKER else changed
        self._policies.check_configs(
            resource, {key: written[key] for key in named if key in written}
        )
        records: list[VersionedRecord] = [
            (ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value), 0)
            for key, value in written.items()
        ]
        if image.features.is_elr_enabled and _MIN_INSYNC_REPLICAS in changed:
            # Replicas that were eligible under the old minimum may not be eligible under the new
            # one.
            records.append((ClearElrRecord(topic_name=name if kind == TOPIC else ""), 0))
        return records


def _refuse_duplicates(resource_twice: bool, names: list[str]) -> None:
    if resource_twice:
        raise Refusal(ErrorCode.INVALID_REQUEST, _MANY_TIMES)
    if len(set(names)) != len(names):
        raise Refusal(ErrorCode.INVALID_REQUEST, _KEY_MANY_TIMES)


def _replacement(image: ClusterImage, resource: LegacyResource) -> dict[str, str | None]:
    """Return the named configs, and the removal of all others."""
    wanted = {each.name: each.value for each in resource.configs}
    without = [name for name, value in wanted.items() if value is None]
    if without:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{', '.join(without)} needs a value")
    current = image.configs.get(resource.resource_type, resource.resource_name)
    return {**wanted, **{name: None for name in current if name not in wanted}}


def _result(
    result_class: type[Result],
    resource: AlterConfigsResource | LegacyResource,
    error: ErrorCode,
    message: str | None,
) -> Result:
    return result_class(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def refuse_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, error: Refusal
) -> Generator[None, None, IncrementalAlterConfigsResponse]:
    """Make the error response for all resources of a request."""
    responses = yield from gradually(
        _result(AlterConfigsResourceResponse, each, error.error_code, error.message)
        for each in request.resources
    )
    return IncrementalAlterConfigsResponse(responses=responses)


def refuse_alter_configs(
    request: AlterConfigsRequest, error: Refusal
) -> Generator[None, None, AlterConfigsResponse]:
    """Make the error response for all resources of a request."""
    responses = yield from gradually(
        _result(LegacyResourceResponse, each, error.error_code, error.message)
        for each in request.resources
    )
    return AlterConfigsResponse(responses=responses)
