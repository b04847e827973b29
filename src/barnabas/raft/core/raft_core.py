"""The rules of the metadata quorum, without any input or output (KIP-595).

The caller calls `step` for each message and `tick` when time passes. Each call returns Effects. The
caller carries out each Effects completely, in the order of its fields, before the next call.

All randomness comes from the given source, and all time from the `now_ms` argument of each call.
The same calls therefore give the same effects. The behavior of each role is in `elections`,
`following`, `leading` and `voter_changes`; the transitions between roles are in `replica`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.core.elections import Elections
from barnabas.raft.core.following import Following
from barnabas.raft.core.leading import Leading, successors
from barnabas.raft.core.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Message,
    QuorumEpochResponse,
    RemoveVoterRequest,
    RequestFailed,
    Response,
    SupportedVersionsRequest,
    SupportedVersionsResponse,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from barnabas.raft.core.replica import Replica
from barnabas.raft.core.roles import (
    NEVER,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from barnabas.raft.core.voter_changes import VoterChanges

if TYPE_CHECKING:
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.core.messages import Effects, LogView, Request
    from barnabas.raft.election_state import ElectionState
    from barnabas.raft.listener import LeaderAndEpoch, SnapshotId
    from barnabas.raft.voter_set import Address, VoterHistory, VoterSet
    from barnabas.runtime.rng import Rng


class RaftCore:
    """The state machine of one replica of the quorum."""

    def __init__(
        self,
        config: RaftConfig,
        log: LogView,
        rng: Rng,
        remembered: ElectionState,
        history: VoterHistory,
    ) -> None:
        self._replica = Replica(config, log, rng, remembered, history)
        self._elections = Elections(self._replica)
        self._following = Following(self._replica)
        self._leading = Leading(self._replica)
        self._voter_changes = VoterChanges(self._replica)
        # When `tick` is due next, ms. Set at the end of each call; NEVER while no timer is needed.
        self._due = NEVER

    # -- queries -----------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """The role of this replica in its epoch. Callers must not change it."""
        return self._replica.role

    @property
    def epoch(self) -> int:
        """The current epoch of this replica."""
        return self._replica.epoch

    @property
    def voted_id(self) -> int:
        """Node id of the candidate that this replica voted for in its epoch; NO_VOTE if none."""
        return self._replica.election.voted_id

    @property
    def voted_directory_id(self) -> bytes:
        """Log directory id of the candidate that this replica voted for; zero if unknown."""
        return self._replica.election.voted_directory_id

    @property
    def high_watermark(self) -> int:
        """Exclusive end of the committed records; -1 while this replica does not know it."""
        return self._replica.high_watermark

    def has_caught_up(self, end_offset: int, epoch: int) -> bool:
        """Return whether no record after `end_offset` was committed at the last response.

        `epoch` is that of the last record before `end_offset`. It must be the current one: a new
        leader reports an old high watermark until it has committed a record of its epoch.
        """
        reported = self._replica.leader_high_watermark
        return epoch == self._replica.epoch and 0 <= reported <= end_offset

    @property
    def is_leader(self) -> bool:
        """Whether this replica is the leader of its epoch."""
        return isinstance(self._replica.role, Leader)

    @property
    def is_voter(self) -> bool:
        """Whether this replica is a voter; otherwise it is an observer."""
        return self._replica.is_voter

    @property
    def has_vote(self) -> bool:
        """Whether this replica may vote and be elected, provided that it is a voter."""
        return self._replica.unproven_voter is None

    @property
    def voters(self) -> VoterSet:
        """The current set of voters."""
        return self._replica.voters

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader that this replica knows, and the epoch; NO_LEADER after a resignation."""
        return self._replica.leader_and_epoch

    @property
    def epoch_start_offset(self) -> int | None:
        """Offset of the LeaderChange record of this leader; None unless this replica leads."""
        role = self._replica.role
        return role.epoch_start_offset if isinstance(role, Leader) else None

    def expects_snapshot(self, snapshot_id: SnapshotId) -> bool:
        """Return whether a completely fetched snapshot should still replace the log."""
        role = self._replica.role
        fetched = role.snapshot if isinstance(role, Follower) else None
        return fetched is not None and fetched.id == snapshot_id and fetched.is_complete

    def address_of(self, destination: int) -> Address | None:
        """Return the address of a destination that the effects name; None if unknown."""
        return self._replica.address_of(destination)

    def leader_address(self) -> Address | None:
        """Return the address where the leader listens for replicas; None if unknown."""
        return self._replica.leader_address()

    def next_deadline(self) -> float:
        """Return when `tick` is due next, ms; infinite if no timer is needed."""
        return self._due

    # -- events ------------------------------------------------------------------------------------

    def start(self, now_ms: float) -> Effects:
        """Continue from the stored election state. A lone voter leads when this returns."""
        replica = self._replica
        replica.begin(now_ms)
        if replica.is_voter and len(replica.voters) == 1 and not self.is_leader:
            replica.to_prospective(now_ms, replica.election.leader_id)
        return self.tick(now_ms)

    def tick(self, now_ms: float) -> Effects:
        """Run the actions that are due at `now_ms`, and return the collected effects.

        Callers may call this at any time.
        """
        replica = self._replica
        if replica.out.truncate_to is not None:
            # The next fetch offset is known only after the caller has truncated the log.
            self._due = now_ms
            return replica.taken()
        while True:
            role = replica.role
            self._due = self._act(now_ms, role)
            if replica.role is role:
                return replica.taken()

    def step(self, now_ms: float, message: Message) -> Effects:
        """Handle a request, a response, or the failure of a request."""
        if isinstance(message, Response):
            self._on_response(now_ms, message)
        elif isinstance(message, RequestFailed):
            self._on_failed(now_ms, message)
        else:
            self._on_request(now_ms, message)
        return self.tick(now_ms)

    def on_appended(self, now_ms: float) -> Effects:
        """As leader, complete the fetches that wait for the records just written at the log end."""
        role = self._replica.role
        if isinstance(role, Leader):
            self._leading.on_appended(now_ms, role)
        return self.tick(now_ms)

    def on_nothing_appended(self, now_ms: float) -> Effects:
        """As follower, handle a fetch response without a whole batch, or with a damaged batch."""
        role = self._replica.role
        if isinstance(role, Follower):
            self._following.on_nothing_appended(now_ms, role)
        return self.tick(now_ms)

    def on_synced(self, now_ms: float, end_offset: int) -> Effects:
        """Note that the log is on disk up to `end_offset`.

        The caller must not report offsets that were truncated after the sync began.
        """
        replica = self._replica
        replica.synced_end = max(replica.synced_end, end_offset)
        role = replica.role
        if isinstance(role, Leader):
            self._leading.on_synced(now_ms, role, end_offset)
        elif isinstance(role, Follower):
            self._following.on_synced(role, end_offset)
        return self.tick(now_ms)

    def on_snapshot_installed(self, now_ms: float, snapshot_id: SnapshotId | None) -> Effects:
        """Note that the leader's snapshot has replaced the log.

        Args:
            now_ms: the current time.
            snapshot_id: the installed snapshot, at whose end the log now begins; None if it was
                damaged.
        """
        self._following.on_snapshot_installed(now_ms, snapshot_id)
        return self.tick(now_ms)

    def on_voters_changed(self, now_ms: float) -> Effects:
        """Note that a voters record was appended to the log, or truncated from it."""
        role = self._replica.role
        if isinstance(role, Leader):
            self._leading.on_voters_changed(now_ms, role)
        return self.tick(now_ms)

    def upgrade_kraft_version(
        self, now_ms: float, level: int, *, validate_only: bool
    ) -> tuple[str | None, Effects]:
        """As leader, start to raise kraft.version.

        Returns:
            The reason why the upgrade is refused (None if it is accepted), and the effects.
        """
        problem = self._voter_changes.upgrade(level, validate_only=validate_only)
        return problem, self.tick(now_ms)

    def resign(self, now_ms: float) -> Effects:
        """Resign if this replica leads, and send the preferred successors to the other voters."""
        role = self._replica.role
        if isinstance(role, Leader):
            self._replica.to_resigned(now_ms, successors(role))
        return self.tick(now_ms)

    # -- dispatch ----------------------------------------------------------------------------------

    def _on_request(self, now_ms: float, request: Request) -> None:
        match request:
            case VoteRequest():
                self._elections.on_vote_request(now_ms, request)
            case BeginQuorumEpochRequest():
                self._elections.on_begin_quorum_epoch(now_ms, request)
            case EndQuorumEpochRequest():
                self._elections.on_end_quorum_epoch(now_ms, request)
            case FetchRequest():
                self._leading.on_fetch(now_ms, request)
            case FetchSnapshotRequest():
                self._leading.on_fetch_snapshot(now_ms, request)
            case AddVoterRequest():
                self._voter_changes.on_add(now_ms, request)
            case RemoveVoterRequest():
                self._voter_changes.on_remove(now_ms, request)
            case UpdateVoterRequest():
                error = self._leading.check_leader_only(request.epoch)
                self._voter_changes.on_update(request, error)
            case _:
                raise AssertionError(f"no handler for {request}")

    def _on_response(self, now_ms: float, response: Response) -> None:
        replica = self._replica
        found = replica.requests.take(response.token)
        if found is None:
            return
        source, request = found
        if isinstance(response, SupportedVersionsResponse):
            self._voter_changes.on_supported_versions(now_ms, response)
            return
        if isinstance(response, VoterChangeResponse):
            self._following.on_voter_change_response(now_ms, request, response)
            if not isinstance(request, UpdateVoterRequest):
                # The responses to AddVoter and RemoveVoter carry neither epoch nor leader.
                return
        if response.epoch < replica.epoch:
            # The peer does not know our epoch yet.
            replica.requests.failed(source, now_ms)
            return
        if replica.learn(now_ms, response.epoch, response.leader_id, response.leader_address):
            return
        role = replica.role
        if isinstance(role, Follower) and role.leader_id == response.leader_id:
            role.leader_address = response.leader_address or role.leader_address
        if response.error is ErrorCode.NONE:
            replica.requests.succeeded(source)
        else:
            replica.requests.failed(source, now_ms)
        match request, response:
            case VoteRequest(), VoteResponse():
                self._elections.on_vote_response(now_ms, request, source, response)
            case _, QuorumEpochResponse():
                self._elections.on_quorum_epoch_response(source, response)
            case FetchRequest(), FetchResponse():
                self._following.on_fetch_response(now_ms, request, source, response)
            case FetchSnapshotRequest(), FetchSnapshotResponse():
                self._following.on_fetch_snapshot_response(now_ms, request, response)
            case UpdateVoterRequest(), VoterChangeResponse():
                pass
            case _:
                raise AssertionError(f"unexpected response: request={request} response={response}")

    def _on_failed(self, now_ms: float, failure: RequestFailed) -> None:
        found = self._replica.requests.take(failure.token)
        if found is None:
            return
        destination, request = found
        self._replica.requests.failed(destination, now_ms)
        if isinstance(request, SupportedVersionsRequest):
            self._voter_changes.on_failed()
        if isinstance(request, FetchSnapshotRequest) and failure.is_refused:
            self._following.on_snapshot_refused()
        if failure.is_unreachable:
            self._following.on_unreachable(now_ms, destination)

    def _act(self, now_ms: float, role: Role) -> float:
        """Do the work of the role that is due, and return the time of the next work."""
        match role:
            case Unattached():
                return self._following.look_for_leader(now_ms, role)
            case Prospective() | Candidate():
                return self._elections.run_for_leader(now_ms, role)
            case Follower():
                return self._following.follow(now_ms, role)
            case Leader():
                due = self._leading.lead(now_ms, role)
                if self._replica.role is not role:
                    return due
                return min(due, self._voter_changes.proceed(now_ms, role))
            case Resigned():
                due = self._elections.send_end_quorum_epoch(now_ms, role)
                if self._replica.is_voter or self._replica.role is not role:
                    return due
                # A removed voter receives no BeginQuorumEpoch from the new leader, so it searches.
                return min(due, self._following.find_leader(now_ms))
            case _:
                assert_never(role)
