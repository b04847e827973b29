"""What replicas of the metadata quorum say to each other, whatever the API (KIP-595, KIP-853).

Fetch (1) of the metadata log, Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54),
FetchSnapshot (59), AddRaftVoter (80), RemoveRaftVoter (81), UpdateRaftVoter (82).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.server.parts import ControllerListenerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ControllerListenerParts) -> Handle:
    """The handler of these APIs."""
    return QuorumRequestHandler(parts).handle_quorum_request


class QuorumRequestHandler:
    """Hands the request to the quorum's replica of this process."""

    __slots__ = ("_raft",)

    def __init__(self, parts: ControllerListenerParts) -> None:
        self._raft = parts.raft

    def handle_quorum_request(self, context: RequestContext, request: Message) -> None:
        """Answered at once, or when there is something to fetch."""
        self._raft.serve(request, context.version, context.respond_exempt)
