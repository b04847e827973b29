"""Serves quorum requests from the controller listener (KIP-595).

The requests are Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch of the metadata log, FetchSnapshot,
AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.quorum import CurrentLeader
from barnabas.raft.transport.conversion import (
    cluster_id_of,
    core_request,
    refusal,
    response_message,
)
from barnabas.raft.voter_set import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.schema import Message
    from barnabas.raft.core.messages import Response
    from barnabas.raft.driver.raft_driver import RaftDriver


class RaftRpc:
    """The entry point for a controller listener."""

    def __init__(self, driver: RaftDriver) -> None:
        self._driver = driver

    def serve(
        self,
        request: Message,
        version: int,
        on_done: Callable[[Message], None],
        listener_name: str | None = None,
    ) -> None:
        """Serve one request.

        Args:
            request: the decoded request; views in it are not kept.
            version: the version of the request, which the response has too.
            on_done: called once with the response, perhaps before this returns.
            listener_name: the listener of the sender, on which it also reaches the leader. None for
                the listener that this replica uses.
        """
        config = self._driver.config
        named = cluster_id_of(request)
        if named is not None and config.cluster_id is not None and named != config.cluster_id:
            on_done(refusal(request, ErrorCode.INCONSISTENT_CLUSTER_ID, self._leader()))
            return
        if self._driver.is_stopped:
            on_done(refusal(request, ErrorCode.BROKER_NOT_AVAILABLE))
            return

        def on_response(response: Response) -> None:
            assert converted is not None
            if listener_name not in (None, config.listener_name):
                at = self._address(response.leader_id, listener_name)
                response = replace(response, leader_address=at)
            on_done(response_message(converted, response, version))

        converted = core_request(request, config.listener_name, on_response)
        if converted is None:
            on_done(refusal(request, ErrorCode.INVALID_REQUEST))
            return
        self._driver.receive(converted)

    def _address(self, leader_id: int, listener_name: str) -> Address | None:
        """Return the leader's address on a listener; None if it is unknown.

        The sender then uses its own configuration. Listeners differ while the nodes move to another
        one, and a node that is given the address of the other listener cannot connect.
        """
        if leader_id == self._driver.config.key.id:
            own = self._driver.config.advertised.get(listener_name)
            return None if own is None else Address(*own)
        voter = self._driver.core.voters.get(leader_id)
        return None if voter is None else voter.address(listener_name)

    def _leader(self) -> CurrentLeader:
        """Return the leader, for the response to a refused UpdateRaftVoter."""
        leader_id, epoch = self._driver.core.leader_and_epoch
        found = self._driver.leader_endpoint()
        host, port = ("", 0) if found is None else found[1:]
        return CurrentLeader(leader_id=leader_id, leader_epoch=epoch, host=host, port=port)
