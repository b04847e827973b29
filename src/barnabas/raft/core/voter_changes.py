"""Adding, removing and updating voters, and the upgrade to kraft.version 1 (KIP-853).

At most one change is pending at a time. Each change is one VotersRecord, which is in force as soon
as it is in the log. The leader starts a change only after it has committed a record of its own
epoch, and after the previous change is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import ZERO_UUID
from barnabas.raft.core.leading import successors
from barnabas.raft.core.messages import (
    AddVoterRequest,
    ControlRecords,
    RemoveVoterRequest,
    SupportedVersionsRequest,
    UpdateVoterRequest,
    VoterChangeResponse,
)
from barnabas.raft.core.roles import NEVER, Leader, VoterChange
from barnabas.raft.voter_set import KRAFT_VERSION_MAX, Voter, VoterSet

if TYPE_CHECKING:
    from barnabas.raft.core.messages import SupportedVersionsResponse
    from barnabas.raft.core.replica import Replica
    from barnabas.raft.voter_set import ReplicaKey

# Kafka's limit: a new voter must have fetched up to the log end within this time.
_CAUGHT_UP_MS = 3_600_000
_RECONFIGURABLE = 1

_Change = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest


class VoterChanges:
    """The leader's handling of voter changes."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    # -- requests ----------------------------------------------------------------------------------

    def on_add(self, now_ms: float, request: AddVoterRequest) -> None:
        """Start to add a voter; `proceed` then asks it for its supported versions."""
        replica = self._replica
        role = replica.role
        if not isinstance(role, Leader):
            self._refuse(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        voter = request.voter
        has_endpoint = voter.address(replica.config.listener_name) is not None
        if not _is_complete(voter.key) or not has_endpoint:
            message = "a voter requires a node id, a directory id and an endpoint for"
            message = f"{message} {replica.config.listener_name}"
            self._refuse(request, ErrorCode.INVALID_REQUEST, message)
            return
        if not self._may_change(role, request):
            return
        if replica.voters.get(voter.key.id) is not None:
            message = f"node {voter.key.id} already has a voter"
            self._refuse(request, ErrorCode.DUPLICATE_VOTER, message)
            return
        role.change = VoterChange(request, now_ms + replica.config.request_timeout_ms)

    def on_remove(self, now_ms: float, request: RemoveVoterRequest) -> None:
        """Append the voter set without the named voter."""
        replica = self._replica
        role = replica.role
        if not isinstance(role, Leader):
            self._refuse(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if not _is_complete(request.voter):
            message = "a voter requires a node id and a directory id"
            self._refuse(request, ErrorCode.INVALID_REQUEST, message)
            return
        if not self._may_change(role, request):
            return
        voters = replica.voters
        known = voters.get(request.voter.id)
        if known is None or known.key != request.voter:
            message = f"the voters are {list(voters.ids)}, each with its directory id"
            self._refuse(request, ErrorCode.VOTER_NOT_FOUND, message)
            return
        if len(voters) == 1:
            # Kafka uses this error code too.
            message = "the last voter cannot be removed"
            self._refuse(request, ErrorCode.VOTER_NOT_FOUND, message)
            return
        change = VoterChange(request, now_ms + replica.config.request_timeout_ms)
        role.change = change
        change.offset = self._append(voters.without(request.voter.id))

    def on_update(self, request: UpdateVoterRequest, error: ErrorCode) -> None:
        """Store a voter's endpoints and supported versions.

        Args:
            request: the voter's own description.
            error: why the request cannot be served here; NONE if it can.
        """
        replica = self._replica
        role = replica.role
        if error is not ErrorCode.NONE or not isinstance(role, Leader):
            self._refuse(request, error)
            return
        voter = request.voter
        if not _is_complete(voter.key):
            self._refuse(request, ErrorCode.INVALID_REQUEST)
            return
        if role.change is not None or replica.high_watermark <= role.epoch_start_offset:
            self._refuse(request, ErrorCode.REQUEST_TIMED_OUT)
            return
        level = replica.history.kraft_version
        if level >= _RECONFIGURABLE and not self._is_last_change_committed():
            self._refuse(request, ErrorCode.REQUEST_TIMED_OUT)
            return
        has_endpoint = voter.address(replica.config.listener_name) is not None
        if not has_endpoint or not voter.min_version <= level <= voter.max_version:
            self._refuse(request, ErrorCode.INVALID_REQUEST)
            return
        known = replica.voters.get(voter.key.id)
        if known is None or known.key.directory_id not in (ZERO_UUID, voter.key.directory_id):
            self._refuse(request, ErrorCode.VOTER_NOT_FOUND)
            return
        if level < _RECONFIGURABLE:
            # Static voters keep their configuration. The upgrade to kraft.version 1 needs these
            # details.
            role.described[voter.key.id] = voter
        elif not voter.is_equivalent_to(known):
            self._append(replica.voters.with_voter(voter))
        replica.respond(request, VoterChangeResponse())

    def _may_change(self, role: Leader, request: AddVoterRequest | RemoveVoterRequest) -> bool:
        """Return whether a change may start; if not, the request has been refused."""
        replica = self._replica
        late = ErrorCode.REQUEST_TIMED_OUT
        if role.change is not None:
            self._refuse(request, late, "another change of the voters is in progress")
        elif replica.high_watermark <= role.epoch_start_offset:
            self._refuse(request, late, "the leader has not committed a record of its epoch yet")
        elif replica.history.kraft_version < _RECONFIGURABLE:
            message = f"voters cannot change with kraft.version {replica.history.kraft_version}"
            self._refuse(request, ErrorCode.UNSUPPORTED_VERSION, message)
        elif not self._is_last_change_committed():
            self._refuse(request, late, "the previous change of the voters is not committed yet")
        else:
            return True
        return False

    def _is_last_change_committed(self) -> bool:
        offset = self._replica.history.last_offset
        return offset is None or offset < self._replica.high_watermark

    # -- pending change ----------------------------------------------------------------------------

    def proceed(self, now_ms: float, role: Leader) -> float:
        """Do the next step of the pending change; returns when to act next, ms."""
        replica = self._replica
        change = role.change
        offset = None if change is None else change.offset
        if offset is not None and offset < replica.high_watermark:
            self._finish(role, ErrorCode.NONE)
            change = None
        if not replica.is_voter and self._is_last_change_committed():
            # The leader is no longer a voter, so the remaining voters elect another leader.
            replica.to_resigned(now_ms, successors(role))
            return now_ms
        if change is None:
            return NEVER
        if now_ms >= change.deadline:
            self._finish(role, ErrorCode.REQUEST_TIMED_OUT)
            return now_ms
        if change.offset is None and not change.are_versions_requested:
            assert isinstance(change.request, AddVoterRequest)
            new_voter_id = change.request.voter.key.id
            ready_at = replica.requests.ready_at(new_voter_id)
            if ready_at > now_ms:
                return min(change.deadline, ready_at)
            change.are_versions_requested = True
            replica.send(now_ms, new_voter_id, SupportedVersionsRequest())
        return change.deadline

    def on_supported_versions(self, now_ms: float, response: SupportedVersionsResponse) -> None:
        """Append the new voter if it supports the current kraft.version and has caught up."""
        replica = self._replica
        role = replica.role
        change = role.change if isinstance(role, Leader) else None
        if change is None or change.offset is not None:
            return
        assert isinstance(role, Leader)
        request = change.request
        assert isinstance(request, AddVoterRequest)
        level = replica.history.kraft_version
        if response.error is not ErrorCode.NONE:
            message = (
                f"the new voter did not report its supported versions: {response.error.message}"
            )
            self._finish(role, ErrorCode.REQUEST_TIMED_OUT, message)
            return
        if not response.min_version <= level <= response.max_version:
            message = f"the new voter supports kraft.version {response.min_version} to"
            message += f" {response.max_version}, but the level is {level}"
            self._finish(role, ErrorCode.INVALID_REQUEST, message)
            return
        state = role.observers.get(request.voter.key)
        if state is None or state.last_caught_up_ms < now_ms - _CAUGHT_UP_MS:
            message = f"node {request.voter.key.id} has not fetched all of the log yet"
            self._finish(role, ErrorCode.REQUEST_TIMED_OUT, message)
            return
        voter = Voter(
            request.voter.key, request.voter.endpoints, response.min_version, response.max_version
        )
        change.offset = self._append(replica.voters.with_voter(voter))
        if not request.ack_when_committed:
            change.has_responded = True
            replica.respond(request, VoterChangeResponse())

    def on_failed(self) -> None:
        """Fail the change, because the request for supported versions failed."""
        role = self._replica.role
        if isinstance(role, Leader) and role.change is not None and role.change.offset is None:
            self._finish(role, ErrorCode.REQUEST_TIMED_OUT, "the new voter does not respond")

    def _finish(self, role: Leader, error: ErrorCode, message: str | None = None) -> None:
        change, role.change = role.change, None
        assert change is not None
        if not change.has_responded:
            self._replica.respond(change.request, VoterChangeResponse(error=error, message=message))

    def _append(self, voters: VoterSet) -> int:
        """Request the append of a VotersRecord; returns its offset."""
        replica = self._replica
        assert replica.out.control_records is None
        replica.out.control_records = ControlRecords(replica.epoch, None, None, voters)
        return replica.log.end_offset

    def _refuse(self, request: _Change, error: ErrorCode, message: str | None = None) -> None:
        self._replica.respond(request, VoterChangeResponse(error=error, message=message))

    # -- kraft.version -----------------------------------------------------------------------------

    def upgrade(self, level: int, *, validate_only: bool) -> str | None:
        """Request the append of a higher kraft.version.

        Returns:
            The reason of a refusal; None if the upgrade is accepted.
        """
        replica = self._replica
        role = replica.role
        current = replica.history.kraft_version
        if not isinstance(role, Leader):
            return "this node does not lead the quorum"
        if level == current:
            return None
        if not current < level <= KRAFT_VERSION_MAX:
            return f"kraft.version is {current} and can be raised to {KRAFT_VERSION_MAX}"
        if replica.high_watermark <= role.epoch_start_offset:
            return "the leader has not committed a record of its epoch yet"
        known = dict(role.described)
        known[replica.me] = replica.own_voter()
        voters = []
        for static in replica.voters:
            voter = known.get(static.key.id)
            is_known = voter is not None and voter.key.directory_id != ZERO_UUID
            name = replica.config.listener_name
            if voter is None or not is_known or voter.address(name) is None:
                return f"voter {static.key.id} has not reported its directory id and endpoints yet"
            if not voter.min_version <= level <= voter.max_version:
                return f"voter {static.key.id} does not support kraft.version {level}"
            voters.append(voter)
        if not validate_only:
            records = ControlRecords(replica.epoch, None, level, VoterSet(voters))
            replica.out.control_records = records
        return None


def _is_complete(key: ReplicaKey) -> bool:
    """Return whether a key has both a node id and a directory id."""
    return key.id >= 0 and key.directory_id != ZERO_UUID
