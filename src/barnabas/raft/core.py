"""The quorum's rules without any input or output: step and tick in, Effects out (KIP-595).

The caller carries out each Effects as a whole, in the order of its fields, before the next call.
All randomness comes from the given source and all time from the `now_ms` of each call, so that the
same calls give the same effects. What a role does lies in `elections`, `following`, `leading` and
`voter_changes`; how roles follow each other, in `replica`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.elections import Elections
from barnabas.raft.following import Following
from barnabas.raft.leading import Leading, successors
from barnabas.raft.messages import (
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
from barnabas.raft.replica import Replica
from barnabas.raft.roles import (
    NEVER,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from barnabas.raft.voter_changes import VoterChanges

if TYPE_CHECKING:
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.effects import Effects
    from barnabas.raft.election_state import ElectionState
    from barnabas.raft.listener import LeaderAndEpoch, SnapshotId
    from barnabas.raft.log_view import LogView
    from barnabas.raft.messages import Request
    from barnabas.raft.replica_key import Address
    from barnabas.raft.voter_history import VoterHistory
    from barnabas.raft.voter_set import VoterSet
    from barnabas.runtime.rng import Rng


class RaftCore:
    """One replica's part in the quorum."""

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
        # When there is something to do by time alone.
        self._due = NEVER

    # -- what callers ask -------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """What this replica is in its epoch; to be looked at only."""
        return self._replica.role

    @property
    def epoch(self) -> int:
        """The epoch this replica is in."""
        return self._replica.epoch

    @property
    def voted_id(self) -> int:
        """Whom this replica voted for in its epoch; NO_VOTE if for nobody."""
        return self._replica.election.voted_id

    @property
    def voted_directory_id(self) -> bytes:
        """That one's log directory; zero if unknown."""
        return self._replica.election.voted_directory_id

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what is committed, as far as this replica knows; -1 at first."""
        return self._replica.high_watermark

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads its epoch."""
        return isinstance(self._replica.role, Leader)

    @property
    def is_voter(self) -> bool:
        """Whether this replica is a voter; else it is an observer."""
        return self._replica.is_voter

    @property
    def has_vote(self) -> bool:
        """Whether this replica takes part in elections, if it is a voter."""
        return self._replica.newcomer is None

    @property
    def voters(self) -> VoterSet:
        """The voters in force."""
        return self._replica.voters

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """Who leads, as far as this replica knows; nobody after a resignation."""
        return self._replica.leader_and_epoch

    @property
    def epoch_start_offset(self) -> int | None:
        """Offset of the leader's own LeaderChange record; None unless this replica leads."""
        role = self._replica.role
        return role.epoch_start_offset if isinstance(role, Leader) else None

    def expects_snapshot(self, snapshot_id: SnapshotId) -> bool:
        """Whether a leader's snapshot that is complete is still to take the place of the log."""
        role = self._replica.role
        fetched = role.snapshot if isinstance(role, Follower) else None
        return fetched is not None and fetched.id == snapshot_id and fetched.is_complete

    def address_of(self, destination: int) -> Address | None:
        """Where to send a request to a destination that the effects name."""
        return self._replica.address_of(destination)

    def leader_address(self) -> Address | None:
        """Where the leader listens for replicas."""
        return self._replica.leader_address()

    def next_deadline(self) -> float:
        """When `tick` is due next; infinite for a voter that is alone."""
        return self._due

    # -- what happens -----------------------------------------------------------------------------

    def start(self, now_ms: float) -> Effects:
        """Take up what was remembered; a voter that is alone leads when this returns."""
        replica = self._replica
        replica.begin(now_ms)
        if replica.is_voter and len(replica.voters) == 1 and not self.is_leader:
            replica.to_prospective(now_ms, replica.election.leader_id)
        return self._settled(now_ms)

    def tick(self, now_ms: float) -> Effects:
        """Time has passed; harmless at any time."""
        return self._settled(now_ms)

    def step(self, now_ms: float, message: Message) -> Effects:
        """A message arrived, or a request failed."""
        if isinstance(message, Response):
            self._on_response(now_ms, message)
        elif isinstance(message, RequestFailed):
            self._on_failed(now_ms, message)
        else:
            self._on_request(now_ms, message)
        return self._settled(now_ms)

    def on_appended(self, now_ms: float) -> Effects:
        """As leader: records were written at the log end; who waits for them is answered."""
        role = self._replica.role
        if isinstance(role, Leader):
            self._leading.on_appended(now_ms, role)
        return self._settled(now_ms)

    def on_nothing_appended(self, now_ms: float) -> Effects:
        """As follower: what the leader sent had no whole batch, or a damaged one."""
        role = self._replica.role
        if isinstance(role, Follower):
            self._following.on_nothing_appended(now_ms, role)
        return self._settled(now_ms)

    def on_synced(self, now_ms: float, end_offset: int) -> Effects:
        """The log is on disk up to `end_offset`; not called for what was truncated meanwhile."""
        replica = self._replica
        replica.synced_end = max(replica.synced_end, end_offset)
        role = replica.role
        if isinstance(role, Leader):
            self._leading.on_synced(now_ms, role, end_offset)
        elif isinstance(role, Follower):
            self._following.on_synced(role, end_offset)
        return self._settled(now_ms)

    def on_snapshot_installed(self, now_ms: float, snapshot_id: SnapshotId | None) -> Effects:
        """The leader's snapshot is in place and the log begins at its end; None: it was damaged."""
        self._following.on_snapshot_installed(now_ms, snapshot_id)
        return self._settled(now_ms)

    def on_voters_changed(self, now_ms: float) -> Effects:
        """A record of other voters was written, or cut off."""
        role = self._replica.role
        if isinstance(role, Leader):
            self._leading.on_voters_changed(now_ms, role)
        return self._settled(now_ms)

    def upgrade_kraft_version(
        self, now_ms: float, level: int, *, validate_only: bool
    ) -> tuple[str | None, Effects]:
        """As leader: have kraft.version raised; the first value says why that cannot be."""
        problem = self._voter_changes.upgrade(level, validate_only=validate_only)
        return problem, self._settled(now_ms)

    def resign(self, now_ms: float) -> Effects:
        """Step down if leading, telling the others who should be next."""
        role = self._replica.role
        if isinstance(role, Leader):
            self._replica.to_resigned(now_ms, successors(role))
        return self._settled(now_ms)

    # -- taking apart -----------------------------------------------------------------------------

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
                raise AssertionError(f"nobody serves {request}")

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
                # It says nothing of epoch and leader.
                return
        if response.epoch < replica.epoch:
            # It has not heard of our epoch yet.
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
                raise AssertionError(f"{response} answers {request}")

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

    # -- what is due ------------------------------------------------------------------------------

    def _settled(self, now_ms: float) -> Effects:
        """Do all that is due, and hand out what came of it."""
        replica = self._replica
        if replica.out.truncate_to is not None:
            # What to fetch next is known only when the log is cut.
            self._due = now_ms
            return replica.taken()
        while True:
            role = replica.role
            self._due = self._act(now_ms, role)
            if replica.role is role:
                return replica.taken()

    def _act(self, now_ms: float, role: Role) -> float:
        """What the role has to do by now; returns when it has to do something next."""
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
                due = self._elections.say_goodbye(now_ms, role)
                if self._replica.is_voter or self._replica.role is not role:
                    return due
                # Removed from the voters: nobody will tell it who leads now.
                return min(due, self._following.ask_around(now_ms))
            case _:
                assert_never(role)
