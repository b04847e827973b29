"""Changes of configs that links make: their own state, and the configs of mirror topics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from barnabas.metadata.configs_image import ALL_BROKERS, BROKER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.server.controller_access.controller_access import ControllerAccess

_log = logging.getLogger(__name__)
_SET, _DELETE = 0, 1
# Two brokers may manage topics for a moment; the second one finds the work done.
_EXPECTED = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS)


def alter_configs(
    forwarding: ControllerAccess,
    changes: Mapping[str, str | None],
    kind: int = BROKER,
    name: str = ALL_BROKERS,
) -> None:
    """Set configs of a resource, by default of all brokers; None deletes a config.

    A refusal is logged: all callers look at the metadata and repeat what is missing there.
    """
    if not changes:
        return
    configs = [
        AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in changes.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)],
        validate_only=False,
    )
    forwarding.send(request, lambda response: log_refusals(response.responses))


def log_refusals(results: Iterable[Any]) -> None:
    """Log the first unexpected error in the results of a request to the controller."""
    for result in results:
        if result.error_code not in _EXPECTED:
            _log.warning(
                "The controller refused a change of a link: name=%s error=%s message=%s",
                getattr(result, "name", "") or getattr(result, "resource_name", ""),
                ErrorCode.of(result.error_code).name,
                result.error_message or "",
            )
            return
