"""Requests between replicas of the metadata quorum, whatever their API (KIP-595, KIP-853).

These are Fetch (1) of the metadata log, Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54),
FetchSnapshot (59), AddRaftVoter (80), RemoveRaftVoter (81) and UpdateRaftVoter (82).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import ControllerListenerDependencies


def handler(dependencies: ControllerListenerDependencies) -> Handle:
    """Return the handler that passes requests to the local replica of the quorum."""
    return QuorumRequestHandler(dependencies).handle_quorum_request


class QuorumRequestHandler:
    """Passes requests to the quorum replica of this process."""

    __slots__ = ("_raft",)

    def __init__(self, dependencies: ControllerListenerDependencies) -> None:
        self._raft = dependencies.raft

    def handle_quorum_request(self, context: RequestContext, request: Message) -> None:
        """Serve a request. The response is immediate, or follows when the replica can respond."""
        self._raft.serve(request, context.version, context.respond_exempt)
