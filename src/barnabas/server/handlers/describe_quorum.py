"""DescribeQuorum: key 55, v0-2. The metadata quorum's leader, voters and observers (KIP-836)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest
    from barnabas.server.parts import NodeParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: NodeParts) -> Handle:
    """The handler of this API."""
    return DescribeQuorumHandler(parts).handle_describe_quorum


class DescribeQuorumHandler:
    """Hands the request to the active controller, which leads the quorum."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: NodeParts) -> None:
        self._forwarding = parts.forwarding

    def handle_describe_quorum(
        self, context: RequestContext, request: DescribeQuorumRequest
    ) -> None:
        """Answered by who knows how far the others are."""
        self._forwarding.send(request, context.respond_forwarded, asker=context)
