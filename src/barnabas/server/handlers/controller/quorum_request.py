"""Requests that go to the quorum replica of this process unchanged (KIP-595, KIP-853).

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
    """Return the handler that passes requests to the local replica of the quorum.

    The response is immediate, or follows when the replica can respond.
    """
    raft = dependencies.raft

    def handle_quorum_request(context: RequestContext, request: Message) -> None:
        raft.serve(request, context.version, context.respond_exempt)

    return handle_quorum_request
