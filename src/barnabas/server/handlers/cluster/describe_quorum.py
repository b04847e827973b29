"""DescribeQuorum (key 55, v0-2): describe leader, voters and observers of the metadata quorum.

See KIP-836.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeParts


def handler(parts: NodeParts) -> Handle:
    """Return the handler that describes the metadata quorum."""
    return DescribeQuorumHandler(parts).handle_describe_quorum


class DescribeQuorumHandler:
    """Forwards the request to the active controller, which is the leader of the quorum."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: NodeParts) -> None:
        self._forwarding = parts.forwarding

    def handle_describe_quorum(
        self, context: RequestContext, request: DescribeQuorumRequest
    ) -> None:
        """Forward the request to the quorum leader, which knows the progress of the replicas."""
        self._forwarding.send(request, context.respond_forwarded, client_context=context)
