"""Checks of requests for configurations.

Configurations of brokers and of client metrics belong to the cluster.
"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - a field of a msgspec.Struct
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from barnabas.controller.config_changes import ConfigOperation
from barnabas.metadata import configs_image
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_configs
from barnabas.protocol.messages.configs import (
    AlterConfigsResourceResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
)
from barnabas.server.security.authorizer.checks.check import (
    ALTER_CONFIGS,
    CLUSTER_ACTION,
    DESCRIBE_CONFIGS,
    GROUP,
    TOPIC,
    Partial,
    divide,
    refuse_items,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
    from barnabas.server.security.authorizer.authorizer import Rights
    from barnabas.server.security.authorizer.checks.check import Verdict

    R = TypeVar(
        "R",
        IncrementalAlterConfigsRequest,
        alter_configs.AlterConfigsRequest,
    )


_BROKER_KINDS = frozenset({configs_image.BROKER, configs_image.BROKER_LOGGER})
_CLUSTER_KINDS = _BROKER_KINDS | {configs_image.CLIENT_METRICS}
_KINDS = _CLUSTER_KINDS | {configs_image.TOPIC, configs_image.GROUP}


def check_describe_configs(
    rights: Rights, request: DescribeConfigsRequest
) -> Verdict | Generator[None, None, Verdict]:
    """Refuse the resources whose configurations the client may not describe."""
    if any(each.resource_type not in _KINDS for each in request.resources):
        # The handler rejects the whole request before it looks up any resource.
        return None
    return refuse_items(
        request,
        lambda each: _error_of(rights, DESCRIBE_CONFIGS, each) is None,
        _add_description_errors,
        "resources",
    )


def _add_description_errors(response: DescribeConfigsResponse, refused: list[Any]) -> None:
    for each in refused:
        error = _code_of(each)
        response.results.append(
            DescribeConfigsResult(
                error_code=error,
                error_message=error.message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                configs=[],
            )
        )


class _AlterRules(msgspec.Struct, frozen=True):
    """Differences between the checks of alterations on brokers and on the controller."""

    # Class of the API's result for a resource.
    made: Callable[..., Any]
    # Kinds of resources that are checked here.
    kinds: frozenset[int]
    operation: int = ALTER_CONFIGS
    # Whether Kafka's response has an error message.
    has_message: bool = True
    # Returns the error message of a resource that is invalid regardless of the client's rights, or
    # "".
    problem_of: Callable[[Any], str] = lambda _: ""


def _own_problem(resource: Any) -> str:
    """Return the error message of an invalid resource of IncrementalAlterConfigs, or ""."""
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        return "each config may be named once"
    if any(
        config.value is None and config.config_operation != ConfigOperation.DELETE
        for config in resource.configs
    ):
        return "a value must not be null"
    return ""


def _own_legacy_problem(resource: Any) -> str:
    """Return the error message of an invalid resource of AlterConfigs, or ""."""
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        return "each config may be named once"
    if any(config.value is None for config in resource.configs):
        return "a value must not be null"
    if resource.resource_type == configs_image.BROKER_LOGGER:
        return "the levels of loggers need IncrementalAlterConfigs"
    return ""


_INCREMENTAL_RESULT = AlterConfigsResourceResponse
_INCREMENTAL = _AlterRules(_INCREMENTAL_RESULT, _KINDS)
_LEGACY = _AlterRules(alter_configs.AlterConfigsResourceResponse, _KINDS)
_OWN_INCREMENTAL = _AlterRules(
    _INCREMENTAL_RESULT, _BROKER_KINDS, has_message=False, problem_of=_own_problem
)
_OWN_LEGACY = _AlterRules(
    alter_configs.AlterConfigsResourceResponse,
    _BROKER_KINDS,
    has_message=False,
    problem_of=_own_legacy_problem,
)
_LOGGERS = _AlterRules(
    _INCREMENTAL_RESULT,
    frozenset({configs_image.BROKER_LOGGER}),
    CLUSTER_ACTION,
    has_message=False,
)


def _check_alter(rules: _AlterRules, rights: Rights, request: R) -> Generator[None, None, Verdict]:
    """Refuse resources of some kinds. The handler rejects repeated resources."""
    times: dict[tuple[int, str], int] = {}
    for each in request.resources:
        key = (each.resource_type, each.resource_name)
        times[key] = times.get(key, 0) + 1
        yield
    # The results of refused resources.
    errors: dict[tuple[int, str], Any] = {}

    def is_allowed(each: Any) -> bool:
        kind, name = each.resource_type, each.resource_name
        if times[kind, name] > 1 or kind not in _KINDS:
            return True
        problem = rules.problem_of(each)
        if problem:
            errors[kind, name] = _alter_error(rules, each, ErrorCode.INVALID_REQUEST, problem)
        elif kind in rules.kinds:
            error = _error_of(rights, rules.operation, each)
            if error is not None:
                message = error.message if rules.has_message else None
                errors[kind, name] = _alter_error(rules, each, error, message)
        return (kind, name) not in errors

    requested = request.resources
    allowed, _ = yield from divide(requested, is_allowed)
    if not errors:
        return None
    request.resources = allowed

    def amend(response: Any) -> Any:
        responses = iter(response.responses)
        response.responses = [
            errors.get((each.resource_type, each.resource_name)) or next(responses)
            for each in requested
        ]
        return response

    return Partial(request, amend)


def _alter_error(rules: _AlterRules, resource: Any, error: ErrorCode, message: str | None) -> Any:
    return rules.made(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _error_of(rights: Rights, operation: int, resource: Any) -> ErrorCode | None:
    kind = resource.resource_type
    if kind == configs_image.TOPIC:
        is_allowed = rights.allows(operation, TOPIC, resource.resource_name)
    elif kind == configs_image.GROUP:
        is_allowed = rights.allows(operation, GROUP, resource.resource_name)
    else:
        is_allowed = rights.allows_on_cluster(operation)
    return None if is_allowed else _code_of(resource)


def _code_of(resource: Any) -> ErrorCode:
    if resource.resource_type == configs_image.TOPIC:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if resource.resource_type == configs_image.GROUP:
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


check_incremental_alter_configs = partial(_check_alter, _INCREMENTAL)
check_alter_configs = partial(_check_alter, _LEGACY)
# Refuse configurations of this broker before the broker checks them. The controller repeats the
# check of rights.
check_own_incremental_alter_configs = partial(_check_alter, _OWN_INCREMENTAL)
check_own_alter_configs = partial(_check_alter, _OWN_LEGACY)
# Refuse loggers of a controller, unless the client may act as a broker.
check_loggers = partial(_check_alter, _LOGGERS)
