"""CreateTopics: key 19, v2-7. Makes topics, or only checks them (v5 answers configs, v7 ids)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.create_topics import CreateTopicsRequest
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return CreateTopicsHandler(parts).handle_create_topics


class CreateTopicsHandler:
    """Hands the request to the active controller."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: ServerParts) -> None:
        self._forwarding = parts.forwarding

    def handle_create_topics(self, context: RequestContext, request: CreateTopicsRequest) -> None:
        """Answered when the topics are committed."""
        self._forwarding.send(request, context.respond)
