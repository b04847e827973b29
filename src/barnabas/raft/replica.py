"""One replica's state in the quorum, and all transitions between its roles (KIP-595, KIP-996).

Elections, following, leading and voter changes work on it. Invariants, asserted where they could
break: the epoch never goes back; within an epoch the leader, once known, does not change; the high
watermark never goes back; roles follow each other as `roles.TRANSITIONS` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.effects import ControlRecords, Effects, LeaderChange
from barnabas.raft.election_state import ElectionState
from barnabas.raft.listener import NO_LEADER, LeaderAndEpoch
from barnabas.raft.messages import (
    AddVoterRequest,
    FetchRequest,
    FetchResponse,
    VoterChangeResponse,
)
from barnabas.raft.newcomer import Newcomer
from barnabas.raft.replica_key import Address, ReplicaKey
from barnabas.raft.request_manager import RequestManager
from barnabas.raft.roles import (
    NEVER,
    TRANSITIONS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    ReplicaState,
    Resigned,
    Role,
    Unattached,
)
from barnabas.raft.voter_set import Voter

if TYPE_CHECKING:
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.log_view import LogView
    from barnabas.raft.messages import Request, Response
    from barnabas.raft.voter_history import VoterHistory
    from barnabas.raft.voter_set import VoterSet
    from barnabas.runtime.rng import Rng

# A leader gives up this many fetch time-outs after a majority last fetched.
CHECK_QUORUM_FACTOR = 1.5
_NOBODY = -1
# Bootstrap servers are numbered downwards from here.
_FIRST_BOOTSTRAP_ID = -2


class Replica:
    """What one replica knows, and what it is about to have done."""

    def __init__(
        self,
        config: RaftConfig,
        log: LogView,
        rng: Rng,
        remembered: ElectionState,
        history: VoterHistory,
    ) -> None:
        self.config = config
        self.log = log
        self.rng = rng
        # Voters by offset; moved by the driver as control records come and go.
        self.history = history
        # What this replica knows of the election of its epoch; equal to the disk after each step.
        self.election = remembered
        self._persisted = remembered
        self._told = LeaderAndEpoch(NO_LEADER, -1)
        # All records below are on a majority of the voters. Moved by the leader's count, or on a
        # follower by what the leader says. Never goes back.
        latest = log.latest_snapshot
        self.high_watermark = -1 if latest is None else latest.end_offset
        # The own log is on disk up to here; at the start all of it is.
        self.synced_end = log.end_offset
        self.role: Role = Unattached(NEVER)
        # What it has found out as long as it has no vote; None once it has.
        self.newcomer = Newcomer() if config.is_newcomer else None
        self.requests = RequestManager(config.request_timeout_ms, config.retry_backoff_ms, rng)
        self.bootstrap = {
            _FIRST_BOOTSTRAP_ID - index: Address(*address)
            for index, address in enumerate(config.bootstrap_servers)
        }
        self._out = Effects()

    # -- facts ------------------------------------------------------------------------------------

    @property
    def me(self) -> int:
        """The own node id."""
        return self.config.node_id

    @property
    def epoch(self) -> int:
        """The epoch this replica is in."""
        return self.election.epoch

    @property
    def voters(self) -> VoterSet:
        """The voters in force."""
        return self.history.last

    @property
    def is_voter(self) -> bool:
        """Whether this replica is a voter; else it is an observer, as without a vote."""
        if self.newcomer is not None:
            return False
        return self.config.can_be_voter and self.voters.is_voter(self.config.key)

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """Who leads, as far as this replica knows; nobody after its own resignation."""
        resigned = isinstance(self.role, Resigned)
        return LeaderAndEpoch(NO_LEADER if resigned else self.election.leader_id, self.epoch)

    @property
    def fetch_key(self) -> ReplicaKey:
        """The replica that fetches name; a leader does not count fetches that name none.

        Without a vote only a fetch that asks for the first record is counted: it says that this
        log is empty, which other voters without a vote have to know.
        """
        key = self.config.key
        if self.newcomer is None or self.log.end_offset == 0:
            return key
        return ReplicaKey(_NOBODY, key.directory_id)

    def address_of(self, destination: int) -> Address | None:
        """Where a voter, the leader, or a bootstrap server listens."""
        if destination in self.bootstrap:
            return self.bootstrap[destination]
        role = self.role
        if isinstance(role, Follower) and role.leader_id == destination and role.leader_address:
            return role.leader_address
        if isinstance(role, Leader) and role.change is not None:
            asked = role.change.request
            if isinstance(asked, AddVoterRequest) and asked.voter.key.id == destination:
                return asked.voter.address(self.config.listener_name)
        voter = self.voters.get(destination)
        return None if voter is None else voter.address(self.config.listener_name)

    def own_voter(self) -> Voter:
        """This replica as it is to stand in the voters' record."""
        endpoints = tuple((name, Address(*at)) for name, at in self.config.advertised.items())
        return Voter(self.config.key, endpoints)

    def leader_address(self) -> Address | None:
        """Where the leader listens for replicas."""
        leader_id = self.leader_and_epoch.leader_id
        if leader_id == NO_LEADER:
            return None
        own = self.config.advertised.get(self.config.listener_name)
        if leader_id == self.me and own is not None:
            return Address(*own)
        return self.address_of(leader_id)

    # -- transitions ------------------------------------------------------------------------------

    def begin(self, now_ms: float) -> None:
        """Take up what was remembered from before this process."""
        remembered = self.election
        if remembered.leader_id == self.me:
            others = {voter for voter in self.voters.ids if voter != self.me}
            self.role = Resigned(self.election_deadline(now_ms), others, ())
        elif remembered.leader_id != NO_LEADER:
            patience = now_ms + self.config.fetch_timeout_ms
            self.role = Follower(remembered.leader_id, None, patience, update_voter_at=patience)
        else:
            self.role = Unattached(self.election_deadline(now_ms))

    def to_unattached(self, now_ms: float, epoch: int) -> None:
        """A later epoch has begun, and nobody is known to lead it."""
        assert epoch > self.epoch, (epoch, self.epoch)
        self.election = ElectionState(epoch)
        self._enter(Unattached(self.election_deadline(now_ms)))

    def take_vote(self, now_ms: float) -> None:
        """Nothing can have been forgotten: vote, and run for leader, from now on."""
        assert self.newcomer is not None
        self.newcomer = None
        self._out.has_vote = True
        if isinstance(self.role, Unattached):
            # All voters are there: no need to wait for a leader to be heard of.
            patience = self.rng.randint(0, self.config.election_timeout_ms)
            self.role.election_deadline = now_ms + patience

    def note_empty(self, node_id: int) -> None:
        """Another voter's log is empty."""
        if self.newcomer is not None and node_id != self.me:
            self.newcomer.empty.add(node_id)

    def vote_for(self, now_ms: float, candidate: ReplicaKey) -> None:
        """Give the epoch's vote away, and wait for what comes of it."""
        assert isinstance(self.role, Unattached | Prospective), self.role
        self.election = replace(
            self.election, voted_id=candidate.id, voted_directory_id=candidate.directory_id
        )
        self._enter(Unattached(self.election_deadline(now_ms)))

    def wait_for_election(self, now_ms: float) -> None:
        """Nobody wanted an election: wait a while before the next attempt."""
        backoff = self.rng.randint(0, self.config.election_backoff_max_ms)
        deadline = now_ms + self.config.election_timeout_ms / 2 + backoff
        self._enter(Unattached(deadline if self.is_voter else NEVER))

    def to_prospective(self, now_ms: float, lost_leader_id: int) -> None:
        """Ask whether an election could be won."""
        assert self.is_voter
        deadline = self.election_deadline(now_ms)
        self._enter(Prospective(deadline, {self.me}, lost_leader_id=lost_leader_id))

    def to_candidate(self, now_ms: float) -> None:
        """Begin an epoch with a vote for oneself."""
        assert self.is_voter
        self.election = ElectionState(self.epoch + 1, NO_LEADER, *self.config.key)
        self._enter(Candidate(self.election_deadline(now_ms), {self.me}))

    def to_leader(self, now_ms: float) -> None:
        """The epoch's election is won."""
        role = self.role
        assert isinstance(role, Candidate)
        voters = self.voters
        granting = tuple(sorted(role.granted & set(voters.ids)))
        assert len(granting) >= voters.majority, (granting, voters)
        self.election = ElectionState(self.epoch, self.me)
        self._enter(
            Leader(
                epoch_start_offset=self.log.end_offset,
                granting_voters=granting,
                synced_offset=self.synced_end,
                voters={v.key.id: ReplicaState(v.key) for v in voters if v.key.id != self.me},
                check_quorum_deadline=now_ms + self.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR,
            )
        )
        # Voters that came with the first snapshot have to be in the log, from where those who
        # fetch the log alone learn them.
        is_new = self.history.kraft_version > 0 and (self.history.last_offset or 0) < 0
        self._out.control_records = ControlRecords(
            self.epoch,
            LeaderChange(self.me, voters, granting),
            self.history.kraft_version if is_new else None,
            voters if is_new else None,
        )

    def to_follower(
        self, now_ms: float, epoch: int, leader_id: int, address: Address | None
    ) -> None:
        """Somebody else leads that epoch."""
        assert epoch >= self.epoch, (epoch, self.epoch)
        assert leader_id not in (NO_LEADER, self.me), leader_id
        known = self.election
        if epoch == known.epoch:
            assert known.leader_id in (NO_LEADER, leader_id), (known, leader_id)
            self.election = replace(known, leader_id=leader_id)
        else:
            self.election = ElectionState(epoch, leader_id)
        patience = now_ms + self.config.fetch_timeout_ms
        self._enter(Follower(leader_id, address, patience, update_voter_at=patience))

    def to_resigned(self, now_ms: float, preferred: tuple[ReplicaKey, ...]) -> None:
        """Step down; the epoch has no leader any more."""
        others = {voter for voter in self.voters.ids if voter != self.me}
        self._enter(Resigned(self.election_deadline(now_ms), others, preferred))

    def _enter(self, role: Role) -> None:
        left = self.role
        assert type(role) in TRANSITIONS[type(left)], (left, role)
        self.role = role
        self.requests.reset()
        if isinstance(left, Leader):
            self._turn_away(left)

    def _turn_away(self, left: Leader) -> None:
        """Tell all who waited for the leader that was."""
        for parked in left.parked.values():
            self.refuse_fetch(parked.request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if left.change is not None and not left.change.is_answered:
            self.answer(
                left.change.request, VoterChangeResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            )

    # -- common to roles --------------------------------------------------------------------------

    def learn(self, now_ms: float, epoch: int, leader_id: int, address: Address | None) -> bool:
        """Take up what another replica says of epoch and leader; returns whether it was news."""
        is_other = leader_id not in (NO_LEADER, self.me)
        if epoch > self.epoch:
            if is_other:
                self.to_follower(now_ms, epoch, leader_id, address)
            else:
                self.to_unattached(now_ms, epoch)
            return True
        if epoch == self.epoch and is_other and self.election.leader_id == NO_LEADER:
            self.to_follower(now_ms, epoch, leader_id, address)
            return True
        return False

    def election_deadline(self, now_ms: float) -> float:
        """When to try an election unless something happens; spread, so that one is first."""
        if not self.is_voter:
            return NEVER
        timeout = self.config.election_timeout_ms
        return now_ms + timeout + self.rng.randint(0, timeout)

    def move_high_watermark(self, offset: int) -> None:
        """Take up a larger one; a smaller one is old news."""
        if offset > self.high_watermark:
            self.high_watermark = self._out.high_watermark = offset

    def send(self, now_ms: float, destination: int, request: Request) -> None:
        """Send a request to a destination that is ready."""
        self._out.requests.append((destination, self.requests.sent(destination, request, now_ms)))

    def answer(self, request: Request, response: Response) -> None:
        """Answer a request with what is known of epoch and leader."""
        leader_id, epoch = self.leader_and_epoch
        completed = replace(
            response,
            token=request.token,
            epoch=epoch,
            leader_id=leader_id,
            leader_address=self.leader_address(),
        )
        self._out.answers.append((request, completed))

    def refuse_fetch(self, request: FetchRequest, error: ErrorCode) -> None:
        """Answer a fetch with an error, and no high watermark, as Kafka."""
        start = self.log.start_offset
        self.answer(request, FetchResponse(error=error, log_start_offset=start))

    @property
    def out(self) -> Effects:
        """The effects gathered since the last `taken`."""
        return self._out

    def taken(self) -> Effects:
        """Hand out the effects gathered since the last call."""
        out, self._out = self._out, Effects()
        if self.election != self._persisted:
            assert self.election.epoch >= self._persisted.epoch
            out.persist = self._persisted = self.election
        leadership = self.leader_and_epoch
        if leadership != self._told:
            out.leadership = self._told = leadership
        return out
