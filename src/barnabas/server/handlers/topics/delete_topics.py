"""DeleteTopics (key 20, v0-6): delete topics by name or, from v6 on, by id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.result import Refusal
from barnabas.controller.topics.topics import refuse_delete_topics
from barnabas.protocol.errors import ErrorCode
from barnabas.server.handlers.forwarded import forward_request

if TYPE_CHECKING:
    from barnabas.protocol.messages.topics import (
        DeleteTopicsRequest,
        DeleteTopicsResponse,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies

# First version whose clients know TOPIC_DELETION_DISABLED (KIP-322).
_DISABLED_SINCE = 3


def handler(dependencies: NodeDependencies) -> Handle:
    """Return the handler that deletes topics."""
    return DeleteTopicsHandler(dependencies).handle_delete_topics


class DeleteTopicsHandler:
    """Forwards the request to the active controller."""

    __slots__ = ("_dependencies", "_is_enabled")

    def __init__(self, dependencies: NodeDependencies) -> None:
        self._dependencies = dependencies
        self._is_enabled = dependencies.config.boolean("delete.topic.enable")

    def handle_delete_topics(
        self, context: RequestContext, request: DeleteTopicsRequest
    ) -> DeleteTopicsResponse | None:
        """Forward the request. The response follows when this broker has applied the deletion."""
        if not self._is_enabled and context.version < _DISABLED_SINCE:
            refusal = Refusal(ErrorCode.INVALID_REQUEST, "delete.topic.enable is false")
            return context.in_slices(refuse_delete_topics(request, refusal))
        forward_request(self._dependencies, context, request)
        return None
