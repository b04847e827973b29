"""Changes of configurations that a broker handles itself (KIP-412; Kafka's ConfigAdminManager).

A broker changes only its own configuration: requests for another broker are rejected. The broker
changes the levels of its loggers itself. The controller handles everything else.

Kafka's loggers have the names of classes, Barnabas's the names of modules. `root` is the root
logger. Levels belong to the process: as in Kafka, they are not in the metadata log and do not
survive a restart.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.controller.config_changes import ConfigOperation
from barnabas.controller.result import Refusal
from barnabas.metadata.configs_image import ALL_BROKERS, BROKER, BROKER_LOGGER
from barnabas.protocol.errors import ErrorCode
from barnabas.settings.key import whole_number
from barnabas.waiting.steps import count_gradually, gradually

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping, Sequence

    from barnabas.protocol.messages.alter_configs import (
        AlterConfigsResource as LegacyResource,
        AlterConfigsResourceResponse as LegacyResourceResponse,
    )
    from barnabas.protocol.messages.configs import (
        AlterableConfig,
        AlterConfigsResource,
        AlterConfigsResourceResponse,
    )

    Result = TypeVar("Result", AlterConfigsResourceResponse, LegacyResourceResponse)


ROOT = "root"

_TRACE = 5
# Python's levels by Kafka's names.
_LEVELS = {
    "TRACE": _TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def described_levels() -> dict[str, str]:
    """Return the effective level of each logger, by name."""
    logging.addLevelName(_TRACE, "TRACE")
    levels = {name: _name_of(logging.getLogger(name)) for name in sorted(_known())}
    return {ROOT: _name_of(logging.getLogger()), **levels}


def check_level_change(name: str, operation: int, level: str | None) -> None:
    """Check a change of a logger's level.

    Raises:
        Refusal: INVALID_CONFIG for an unknown logger or level. INVALID_REQUEST for an unsupported
            operation, or for the removal of the root logger's level.
    """
    if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise Refusal(
            ErrorCode.INVALID_REQUEST, f"operation {operation} cannot change the level of a logger"
        )
    if operation == ConfigOperation.SET and level is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"the level of logger {name} is missing")
    if name != ROOT and name not in _known():
        raise Refusal(ErrorCode.INVALID_CONFIG, f"logger {name} does not exist")
    if operation == ConfigOperation.DELETE:
        if name == ROOT:
            raise Refusal(
                ErrorCode.INVALID_REQUEST, "the level of the root logger cannot be removed"
            )
        return
    if level not in _LEVELS:
        raise Refusal(
            ErrorCode.INVALID_CONFIG, f"{level} is not one of the levels {', '.join(_LEVELS)}"
        )


def change_level(name: str, operation: int, level: str | None) -> None:
    """Apply a checked change: set a level, or remove it so that the parent's level applies."""
    logger = logging.getLogger() if name == ROOT else logging.getLogger(name)
    if operation == ConfigOperation.DELETE or level is None:
        logger.setLevel(logging.NOTSET)
    else:
        logger.setLevel(_LEVELS[level])


def _known() -> set[str]:
    """Return the names of the loggers that this process has created, and of their parents."""
    return {
        name for name in logging.Logger.manager.loggerDict if name.partition(".")[0] == "barnabas"
    }


def _name_of(logger: logging.Logger) -> str:
    """Return Kafka's name of the effective level. A level between two names has the lower name."""
    effective = logger.getEffectiveLevel()
    fitting = [name for name, level in _LEVELS.items() if level <= effective]
    return fitting[-1] if fitting else "TRACE"


# Result for a resource that is not forwarded to the controller: an error, or None for success.
Outcome = Refusal | None
# Outcomes by the position of the resource in the request.
Outcomes = dict[int, Outcome]


class OwnChangeChecks(Protocol):
    """Checks of changes to the broker's own configuration."""

    def check(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Raise Refusal for changes that the broker rejects.

        Args:
            resource: name of the broker resource; empty for all brokers.
            changes: new values by key; None for deleted keys.
        """
        ...

    def check_replacement(self, resource: str, named: Collection[str]) -> None:
        """Raise Refusal for a request that may not delete all keys that it does not name.

        Args:
            resource: name of the broker resource; empty for all brokers.
            named: keys in the request.
        """
        ...

    def removable(self, resource: str) -> list[str]:
        """Return the checked keys that a request removes if it replaces all keys."""
        ...


def handle_locally(
    node_id: int,
    resources: Sequence[AlterConfigsResource],
    *,
    validate_only: bool,
    checks: OwnChangeChecks | None,
) -> Generator[None, None, Outcomes]:
    """Change the levels of loggers, and reject resources that must not reach the controller.

    The generator rejects repeated resources, resources of other brokers, and values that change too
    much at once.

    Args:
        node_id: id of this node.
        resources: resources of the request.
        validate_only: whether to check logger levels without changing them.
        checks: checks of this broker; None on controllers, which accept configurations of all
            brokers.

    Returns:
        The outcome of each resource that is not forwarded.
    """
    outcomes = yield from _refuse_duplicates(resources)
    for index, resource in enumerate(resources):
        yield
        if index in outcomes:
            continue
        try:
            if resource.resource_type == BROKER_LOGGER:
                _change_levels(node_id, resource, validate_only=validate_only)
                outcomes[index] = None
            elif checks is not None and resource.resource_type == BROKER:
                _check_own(node_id, resource.resource_name)
                checks.check(resource.resource_name, _set_and_deleted(resource.configs))
        except Refusal as refusal:
            # Drop the traceback, because its frame refers to this dictionary.
            outcomes[index] = refusal.with_traceback(None)
    return outcomes


def handle_legacy_locally(
    node_id: int, resources: Sequence[LegacyResource], checks: OwnChangeChecks | None
) -> Generator[None, None, Outcomes]:
    """Reject resources of AlterConfigs that must not reach the controller.

    AlterConfigs does not support loggers, and it deletes every key that it does not name.
    Parameters and result are those of `handle_locally`.
    """
    outcomes = yield from _refuse_duplicates(resources)
    if checks is None:
        return outcomes
    for index, resource in enumerate(resources):
        yield
        if index in outcomes or resource.resource_type != BROKER:
            continue
        try:
            name = resource.resource_name
            _check_own(node_id, name)
            named = {each.name: each.value for each in resource.configs}
            checks.check_replacement(name, named)
            checks.check(name, {**dict.fromkeys(checks.removable(name)), **named})
        except Refusal as refusal:
            # Drop the traceback, because its frame refers to this dictionary.
            outcomes[index] = refusal.with_traceback(None)
    return outcomes


def merge_results(
    result_class: type[Result],
    resources: Sequence[AlterConfigsResource | LegacyResource],
    outcomes: Outcomes,
    forwarded: Iterable[Result],
) -> Generator[None, None, list[Result]]:
    """Return one result per resource, in the order of the request.

    Args:
        result_class: class of the API's result for a resource.
        resources: resources of the request.
        outcomes: outcomes of the resources that were not forwarded.
        forwarded: results of the controller for the other resources, in order.
    """
    forwarded_results = iter(forwarded)
    return gradually(
        _make_result(result_class, resource, outcomes[index])
        if index in outcomes
        else next(forwarded_results)
        for index, resource in enumerate(resources)
    )


def names_broker(name: str, node_id: int) -> bool:
    """Return whether a resource name is the id of this broker, in any notation."""
    return whole_number(name) == node_id


def _make_result(
    result_class: type[Result], resource: AlterConfigsResource | LegacyResource, outcome: Outcome
) -> Result:
    return result_class(
        error_code=ErrorCode.NONE if outcome is None else outcome.error_code,
        error_message=None if outcome is None else outcome.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _refuse_duplicates(
    resources: Sequence[AlterConfigsResource | LegacyResource],
) -> Generator[None, None, Outcomes]:
    names = [(each.resource_type, each.resource_name) for each in resources]
    times = yield from count_gradually(names)
    refusal = Refusal(ErrorCode.INVALID_REQUEST, "each resource may be named once")
    return {index: refusal for index, name in enumerate(names) if times[name] > 1}


def _set_and_deleted(configs: Iterable[AlterableConfig]) -> dict[str, str | None]:
    """Return the new values of set keys, and None for deleted keys.

    Other operations are omitted, because they are for lists and the checked keys are not lists.
    """
    known = (ConfigOperation.SET, ConfigOperation.DELETE)
    return {
        each.name: each.value if each.config_operation == ConfigOperation.SET else None
        for each in configs
        if each.config_operation in known
    }


def _check_own(node_id: int, name: str) -> None:
    if name not in (ALL_BROKERS, str(node_id)):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"broker {node_id} cannot change broker {name!r}")


def _change_levels(node_id: int, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    """Change all levels of the resource. If one is invalid, change no level."""
    if not names_broker(resource.resource_name, node_id):
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"broker {node_id} cannot change the loggers of {resource.resource_name!r}",
        )
    names = [each.name for each in resource.configs]
    if len(set(names)) != len(names):
        raise Refusal(ErrorCode.INVALID_REQUEST, "each logger may be named once")
    for each in resource.configs:
        check_level_change(each.name, each.config_operation, each.value)
    if not validate_only:
        for each in resource.configs:
            change_level(each.name, each.config_operation, each.value)
