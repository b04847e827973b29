"""What a broker itself does of changing configs, before the controller does the rest (KIP-412).

Kafka: ConfigAdminManager. A broker answers for itself only: configs of another broker are refused,
and levels of loggers never leave this process.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from barnabas.controller.config_operations import ConfigOperation
from barnabas.controller.result import Refusal
from barnabas.metadata.configs_image import ALL_BROKERS, BROKER, BROKER_LOGGER
from barnabas.protocol.errors import ErrorCode
from barnabas.server.gradual_keys import GRADUAL
from barnabas.server.log_levels import change_level, check_level_change
from barnabas.settings.key import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.protocol.messages.alter_configs import AlterConfigsResource as LegacyResource
    from barnabas.protocol.messages.alter_configs import (
        AlterConfigsResourceResponse as LegacyResourceResponse,
    )
    from barnabas.protocol.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        AlterConfigsResourceResponse,
    )
    from barnabas.server.gradual_keys import GradualKeys

    Answer = TypeVar("Answer", AlterConfigsResourceResponse, LegacyResourceResponse)

# What came of a resource that the controller need not see; None: it is done.
Outcome = Refusal | None


def settle_incremental(
    node_id: int,
    resources: Sequence[AlterConfigsResource],
    *,
    validate_only: bool,
    own: GradualKeys | None,
) -> dict[int, Outcome]:
    """Change the levels of loggers, and refuse what is not this broker's, or too much at once.

    Args:
        own: what holds on this broker; None on controllers, which take configs of all brokers.

    Returns:
        The outcome of each resource that the controller need not see, by its place.
    """
    settled = _refused_twice([(each.resource_type, each.resource_name) for each in resources])
    for place, resource in enumerate(resources):
        if place in settled:
            continue
        try:
            if resource.resource_type == BROKER_LOGGER:
                _change_levels(node_id, resource, validate_only=validate_only)
                settled[place] = None
            elif own is not None and resource.resource_type == BROKER:
                _check_own(node_id, resource.resource_name)
                own.check(resource.resource_name, _set_and_deleted(resource.configs))
        except Refusal as refusal:
            # Without the traceback, whose frame holds this dictionary.
            settled[place] = refusal.with_traceback(None)
    return settled


def settle_legacy(
    node_id: int, resources: Sequence[LegacyResource], own: GradualKeys | None
) -> dict[int, Outcome]:
    """The same for AlterConfigs: it does not know loggers, and what it does not name goes."""
    settled = _refused_twice([(each.resource_type, each.resource_name) for each in resources])
    if own is None:
        return settled
    for place, resource in enumerate(resources):
        if place in settled or resource.resource_type != BROKER:
            continue
        try:
            _check_own(node_id, resource.resource_name)
            own.check(
                resource.resource_name,
                {**dict.fromkeys(GRADUAL), **{each.name: each.value for each in resource.configs}},
            )
        except Refusal as refusal:
            # Without the traceback, whose frame holds this dictionary.
            settled[place] = refusal.with_traceback(None)
    return settled


def joined(
    made: type[Answer],
    resources: Sequence[AlterConfigsResource | LegacyResource],
    settled: Mapping[int, Outcome],
    forwarded: Iterable[Answer],
) -> list[Answer]:
    """One answer per resource, in the order of the request.

    Args:
        made: the API's answer for a resource.
        forwarded: the controller's answers for those that are not settled.
    """
    rest = iter(forwarded)
    return [
        _answer(made, resource, settled[place]) if place in settled else next(rest)
        for place, resource in enumerate(resources)
    ]


def names_broker(name: str, node_id: int) -> bool:
    """Whether a resource's name is the number of that broker, however it is written."""
    return whole_number(name) == node_id


def _answer(
    made: type[Answer], resource: AlterConfigsResource | LegacyResource, outcome: Outcome
) -> Answer:
    return made(
        error_code=ErrorCode.NONE if outcome is None else outcome.error_code,
        error_message=None if outcome is None else outcome.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _refused_twice(names: list[tuple[int, str]]) -> dict[int, Outcome]:
    refusal = Refusal(ErrorCode.INVALID_REQUEST, "each resource may be named once")
    times = Counter(names)
    return {place: refusal for place, name in enumerate(names) if times[name] > 1}


def _set_and_deleted(configs: Iterable[AlterableConfig]) -> dict[str, str | None]:
    """What becomes of the keys that are set or deleted; numbers cannot be appended to."""
    known = (ConfigOperation.SET, ConfigOperation.DELETE)
    return {
        each.name: each.value if each.config_operation == ConfigOperation.SET else None
        for each in configs
        if each.config_operation in known
    }


def _check_own(node_id: int, name: str) -> None:
    if name not in (ALL_BROKERS, str(node_id)):
        raise Refusal(
            ErrorCode.INVALID_REQUEST, f"broker {node_id} was asked to change broker {name!r}"
        )


def _change_levels(node_id: int, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    """All levels of the resource, or none."""
    if not names_broker(resource.resource_name, node_id):
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"broker {node_id} was asked to change loggers of {resource.resource_name!r}",
        )
    names = [each.name for each in resource.configs]
    if len(set(names)) != len(names):
        raise Refusal(ErrorCode.INVALID_REQUEST, "each logger may be named once")
    for each in resource.configs:
        check_level_change(each.name, each.config_operation, each.value)
    if not validate_only:
        for each in resource.configs:
            change_level(each.name, each.config_operation, each.value)
