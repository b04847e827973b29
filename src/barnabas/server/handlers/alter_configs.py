"""AlterConfigs: key 33, v0-2. Replaces all configs of a resource (KIP-133)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.server.config_admin import settle_legacy

if TYPE_CHECKING:
    from barnabas.server.config_admin import Outcome
    from barnabas.server.parts import NodeParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: NodeParts) -> Handle:
    """The handler of this API."""
    return AlterConfigsHandler(parts).handle_alter_configs


class AlterConfigsHandler:
    """Does what this broker can itself, and hands the rest to the active controller."""

    __slots__ = ("_any_broker", "_forwarding", "_node_id")

    def __init__(self, parts: NodeParts) -> None:
        self._forwarding = parts.forwarding
        self._node_id = parts.node_id
        self._any_broker = parts.alters_any_broker

    def handle_alter_configs(
        self, context: RequestContext, request: AlterConfigsRequest
    ) -> AlterConfigsResponse | None:
        """Answered when the configs are committed."""
        settled = settle_legacy(self._node_id, request.resources, any_broker=self._any_broker)
        rest = [each for place, each in enumerate(request.resources) if place not in settled]

        def on_rest(response: AlterConfigsResponse) -> None:
            context.respond(_joined(request, settled, response))

        if not rest:
            return _joined(request, settled, AlterConfigsResponse(responses=[]))
        forwarded = AlterConfigsRequest(resources=rest, validate_only=request.validate_only)
        self._forwarding.send(forwarded, on_rest, asker=context)
        return None


def _joined(
    request: AlterConfigsRequest,
    settled: dict[int, Outcome],
    rest: AlterConfigsResponse,
) -> AlterConfigsResponse:
    """One answer per resource, in the order of the request."""
    forwarded = iter(rest.responses)
    return AlterConfigsResponse(
        responses=[
            _answer(request, place, settled[place]) if place in settled else next(forwarded)
            for place in range(len(request.resources))
        ]
    )


def _answer(
    request: AlterConfigsRequest, place: int, outcome: Outcome
) -> AlterConfigsResourceResponse:
    resource = request.resources[place]
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if outcome is None else outcome.error_code,
        error_message=None if outcome is None else outcome.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
