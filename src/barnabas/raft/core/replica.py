"""One replica's state in the quorum, and all transitions between its roles (KIP-595, KIP-996).

Elections, Following, Leading and VoterChanges work on this state. These invariants are asserted:
the epoch never decreases; the leader of an epoch never changes once known; roles change only as
`roles.TRANSITIONS` allows. The high watermark never decreases.

`RequestManager` allows one request in flight per destination, with timeout and backoff.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.core.messages import (
    AddVoterRequest,
    ControlRecords,
    Effects,
    FetchRequest,
    FetchResponse,
    LeaderChange,
    VoterChangeResponse,
)
from barnabas.raft.core.roles import (
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
from barnabas.raft.election_state import ElectionState, UnprovenVoter
from barnabas.raft.listener import NO_LEADER, LeaderAndEpoch
from barnabas.raft.voter_set import Address, ReplicaKey, Voter

if TYPE_CHECKING:
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.core.messages import LogView, Request, Response
    from barnabas.raft.voter_set import VoterHistory, VoterSet
    from barnabas.runtime.rng import Rng


# Upper limit of the factor by which repeated failures lengthen the backoff.
_BACKOFF_FACTOR_MAX = 8


class _Destination(msgspec.Struct):
    """The request state of one destination."""

    # Token of the request in flight; 0 if there is none.
    token: int = 0
    # When a request may be sent. A request in flight counts as lost from this time on, ms.
    ready_at: float = -NEVER
    # Number of consecutive failures.
    failures: int = 0


class RequestManager:
    """Assigns tokens to requests, and matches responses to the requests in flight."""

    def __init__(self, timeout_ms: float, backoff_ms: float, rng: Rng) -> None:
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._rng = rng
        self._last_token = 0
        self._destinations: dict[int, _Destination] = {}
        # Token -> (destination, request) of the requests in flight.
        self._in_flight: dict[int, tuple[int, Request]] = {}

    def ready_at(self, destination: int) -> float:
        """Return when the destination may be sent a request, ms; a past time means now."""
        known = self._destinations.get(destination)
        return -NEVER if known is None else known.ready_at

    def is_backing_off(self, destination: int, now_ms: float) -> bool:
        """Return whether the last request failed and the backoff has not passed yet."""
        known = self._destinations.get(destination)
        return known is not None and known.token == 0 and known.ready_at > now_ms

    def busy_until(self, now_ms: float) -> float:
        """Return when the last request in flight counts as lost, ms.

        The result is a past time if no request is in flight.
        """
        waiting = [each.ready_at for each in self._destinations.values() if each.token]
        return max((at for at in waiting if at > now_ms), default=-NEVER)

    def sent(self, destination: int, request: Request, now_ms: float) -> Request:
        """Register a request that is about to be sent; returns it with its token."""
        known = self._destinations.setdefault(destination, _Destination())
        assert now_ms >= known.ready_at, (destination, now_ms, known)
        self._in_flight.pop(known.token, None)
        self._last_token += 1
        known.token = self._last_token
        known.ready_at = now_ms + self._timeout_ms
        numbered = replace(request, token=known.token)
        self._in_flight[known.token] = (destination, numbered)
        return numbered

    def take(self, token: int) -> tuple[int, Request] | None:
        """Return the request that a response or failure ends; None if it is no longer pending."""
        found = self._in_flight.pop(token, None)
        if found is not None:
            known = self._destinations[found[0]]
            known.token = 0
            known.ready_at = -NEVER
        return found

    def succeeded(self, destination: int) -> None:
        """Reset the failure count after a successful response."""
        known = self._destinations.get(destination)
        if known is not None:
            known.failures = 0

    def failed(self, destination: int, now_ms: float) -> None:
        """Start the backoff after a failure, or after a response that asks for a retry."""
        known = self._destinations.setdefault(destination, _Destination())
        factor = min(1 << min(known.failures, 10), _BACKOFF_FACTOR_MAX)
        known.failures += 1
        # A random factor between 0.8 and 1.2 spreads the retries.
        known.ready_at = now_ms + self._backoff_ms * factor * (0.8 + 0.4 * self._rng.random())

    def reset(self) -> None:
        """Forget all requests after a change of the role; late responses are ignored."""
        self._destinations.clear()
        self._in_flight.clear()


# A leader resigns this many fetch timeouts after a majority last fetched.
CHECK_QUORUM_FACTOR = 1.5
_NO_REPLICA_ID = -1
# Bootstrap servers have the ids -2, -3 and so on.
_FIRST_BOOTSTRAP_ID = -2


class Replica:
    """The state of one replica, and the effects collected for the caller."""

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
        # Voter sets by log offset. The driver updates it when control records are appended or
        # truncated.
        self.history = history
        # Election state of the current epoch. Equal to the stored state after each step is carried
        # out.
        self.election = remembered
        # The election state that the last Effects asked the caller to store.
        self._persisted = remembered
        # The leader and epoch that the last Effects reported.
        self._reported = LeaderAndEpoch(NO_LEADER, -1)
        # All records below this offset are on a majority of the voters; -1 while unknown. The
        # leader computes it; a follower takes it from the leader. It never decreases.
        latest = log.latest_snapshot
        self.high_watermark = -1 if latest is None else latest.end_offset
        # The largest high watermark that a leader has sent, or that this leader has computed, since
        # the start; -1 before. The log may end below it.
        self.leader_high_watermark = -1
        # This replica's log is on disk up to this offset, exclusive. At the start all of it is.
        self.synced_end = log.end_offset
        # Changed only by the transition methods below.
        self.role: Role = Unattached(NEVER)
        # Knowledge of this replica while it may not vote; None once it may vote.
        self.unproven_voter = UnprovenVoter() if config.is_unproven_voter else None
        self.requests = RequestManager(config.request_timeout_ms, config.retry_backoff_ms, rng)
        # Addresses of the bootstrap servers by their negative ids; never changes.
        self.bootstrap = {
            _FIRST_BOOTSTRAP_ID - index: Address(*address)
            for index, address in enumerate(config.bootstrap_servers)
        }
        # Effects collected since the last call of `taken`.
        self._out = Effects()

    # -- queries -----------------------------------------------------------------------------------

    @property
    def me(self) -> int:
        """The node id of this replica."""
        return self.config.node_id

    @property
    def epoch(self) -> int:
        """The current epoch of this replica."""
        return self.election.epoch

    @property
    def voters(self) -> VoterSet:
        """The current set of voters."""
        return self.history.last

    @property
    def is_voter(self) -> bool:
        """Whether this replica is a voter. A voter that may not vote yet counts as an observer."""
        if self.unproven_voter is not None:
            return False
        return self.config.can_be_voter and self.voters.is_voter(self.config.key)

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The known leader and the epoch; NO_LEADER after this replica's own resignation."""
        resigned = isinstance(self.role, Resigned)
        return LeaderAndEpoch(NO_LEADER if resigned else self.election.leader_id, self.epoch)

    @property
    def fetch_key(self) -> ReplicaKey:
        """The replica key for fetch requests.

        The leader does not count fetches without a replica id. While this replica may not vote, it
        names itself only in a fetch from offset 0. That fetch shows that its log is empty, which
        other voters in the same state have to know.
        """
        key = self.config.key
        if self.unproven_voter is None or self.log.end_offset == 0:
            return key
        return ReplicaKey(_NO_REPLICA_ID, key.directory_id)

    def address_of(self, destination: int) -> Address | None:
        """Return the address of a voter, the leader, or a bootstrap server; None if unknown."""
        if destination in self.bootstrap:
            return self.bootstrap[destination]
        role = self.role
        if isinstance(role, Follower) and role.leader_id == destination and role.leader_address:
            return role.leader_address
        if isinstance(role, Leader) and role.change is not None:
            change_request = role.change.request
            if (
                isinstance(change_request, AddVoterRequest)
                and change_request.voter.key.id == destination
            ):
                return change_request.voter.address(self.config.listener_name)
        voter = self.voters.get(destination)
        return None if voter is None else voter.address(self.config.listener_name)

    def own_voter(self) -> Voter:
        """Return this replica's entry for the voters record."""
        endpoints = tuple((name, Address(*at)) for name, at in self.config.advertised.items())
        return Voter(self.config.key, endpoints)

    def leader_address(self) -> Address | None:
        """Return the address where the leader listens for replicas; None if unknown."""
        leader_id = self.leader_and_epoch.leader_id
        if leader_id == NO_LEADER:
            return None
        own = self.config.advertised.get(self.config.listener_name)
        if leader_id == self.me and own is not None:
            return Address(*own)
        return self.address_of(leader_id)

    # -- transitions -------------------------------------------------------------------------------

    def begin(self, now_ms: float) -> None:
        """Set the first role from the stored election state."""
        remembered = self.election
        if remembered.leader_id == self.me:
            others = {voter for voter in self.voters.ids if voter != self.me}
            self.role = Resigned(self.election_deadline(now_ms), others, ())
        elif remembered.leader_id != NO_LEADER:
            deadline = now_ms + self.config.fetch_timeout_ms
            self.role = Follower(remembered.leader_id, None, deadline, update_voter_at=deadline)
        else:
            self.role = Unattached(self.election_deadline(now_ms))

    def to_unattached(self, now_ms: float, epoch: int) -> None:
        """Enter a later epoch whose leader is unknown."""
        assert epoch > self.epoch, f"epoch={self.epoch} new={epoch}"
        self.election = ElectionState(epoch)
        self._enter(Unattached(self.election_deadline(now_ms)))

    def take_vote(self, now_ms: float) -> None:
        """Start to vote and to run for leader, because this replica cannot have lost any record."""
        assert self.unproven_voter is not None, f"node {self.me} has its vote already"
        self.unproven_voter = None
        self._out.has_vote = True
        if isinstance(self.role, Unattached):
            # All voters are reachable, so there is no need to wait for a leader to appear.
            delay_ms = self.rng.randint(0, self.config.election_timeout_ms)
            self.role.election_deadline = now_ms + delay_ms

    def note_empty(self, node_id: int) -> None:
        """Note that the log of another voter is empty."""
        if self.unproven_voter is not None and node_id != self.me:
            self.unproven_voter.empty.add(node_id)

    def vote_for(self, now_ms: float, candidate: ReplicaKey) -> None:
        """Vote for a candidate in this epoch, and wait for the outcome."""
        assert isinstance(self.role, Unattached | Prospective), f"role={self.role}"
        self.election = replace(
            self.election, voted_id=candidate.id, voted_directory_id=candidate.directory_id
        )
        self._enter(Unattached(self.election_deadline(now_ms)))

    def wait_for_election(self, now_ms: float) -> None:
        """Wait before the next attempt, because the voters rejected an election."""
        backoff = self.rng.randint(0, self.config.election_backoff_max_ms)
        deadline = now_ms + self.config.election_timeout_ms / 2 + backoff
        self._enter(Unattached(deadline if self.is_voter else NEVER))

    def to_prospective(self, now_ms: float, lost_leader_id: int) -> None:
        """Start to ask for pre-votes."""
        assert self.is_voter, f"node={self.me} voters={self.voters.ids}"
        deadline = self.election_deadline(now_ms)
        self._enter(Prospective(deadline, {self.me}, lost_leader_id=lost_leader_id))

    def to_candidate(self, now_ms: float) -> None:
        """Start a new epoch with a vote for this replica itself."""
        assert self.is_voter, f"node={self.me} voters={self.voters.ids}"
        self.election = ElectionState(self.epoch + 1, NO_LEADER, *self.config.key)
        self._enter(Candidate(self.election_deadline(now_ms), {self.me}))

    def to_leader(self, now_ms: float) -> None:
        """Become leader after winning the epoch's election."""
        role = self.role
        assert isinstance(role, Candidate), f"role={role}"
        voters, known = self.voters, self.election.leader_id
        assert known == NO_LEADER, (
            f"OneLeaderPerEpoch: epoch={self.epoch} leader={known} elected={self.me}"
        )
        granting = tuple(sorted(role.granted & set(voters.ids)))
        assert len(granting) >= voters.majority, f"granting={granting} voters={voters.ids}"
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
        # Voters known only from the first snapshot must be written to the log, because replicas
        # that fetch only the log learn the voters from there.
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
        """Follow another replica that leads `epoch`."""
        assert epoch >= self.epoch, f"epoch={self.epoch} new={epoch}"
        assert leader_id not in (NO_LEADER, self.me), f"leader={leader_id} node={self.me}"
        known = self.election
        if epoch == known.epoch:
            assert known.leader_id in (NO_LEADER, leader_id), (
                f"OneLeaderPerEpoch: epoch={epoch} leader={known.leader_id} new={leader_id}"
            )
            self.election = replace(known, leader_id=leader_id)
        else:
            self.election = ElectionState(epoch, leader_id)
        deadline = now_ms + self.config.fetch_timeout_ms
        self._enter(Follower(leader_id, address, deadline, update_voter_at=deadline))

    def to_resigned(self, now_ms: float, preferred: tuple[ReplicaKey, ...]) -> None:
        """Resign; the epoch then has no leader."""
        others = {voter for voter in self.voters.ids if voter != self.me}
        self._enter(Resigned(self.election_deadline(now_ms), others, preferred))

    def _enter(self, role: Role) -> None:
        left = self.role
        assert type(role) in TRANSITIONS[type(left)], f"role={left} new={role}"
        self.role = role
        self.requests.reset()
        if isinstance(left, Leader):
            self._fail_waiting_requests(left)

    def _fail_waiting_requests(self, left: Leader) -> None:
        """Fail all requests that wait for this replica as leader."""
        for pending in left.pending.values():
            self.refuse_fetch(pending.request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if left.change is not None and not left.change.has_responded:
            self.respond(
                left.change.request, VoterChangeResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            )

    # -- shared by the roles -----------------------------------------------------------------------

    def learn(self, now_ms: float, epoch: int, leader_id: int, address: Address | None) -> bool:
        """Adopt an epoch and leader from another replica; returns whether the role changed."""
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
        """Return when to start an election, ms. The random part lets one voter start first."""
        if not self.is_voter:
            return NEVER
        timeout = self.config.election_timeout_ms
        return now_ms + timeout + self.rng.randint(0, timeout)

    def move_high_watermark(self, offset: int) -> None:
        """Raise the high watermark.

        A smaller value is ignored, as in Kafka: a new leader does not know the high watermark until
        it has committed a record of its epoch, and its followers may know a larger one.
        """
        if offset > self.high_watermark:
            self.high_watermark = self._out.high_watermark = offset

    def note_leader_high_watermark(self, offset: int) -> None:
        """Note a high watermark of the leader, which may lie above the end of this log."""
        self.leader_high_watermark = max(self.leader_high_watermark, offset)

    def send(self, now_ms: float, destination: int, request: Request) -> None:
        """Send a request to a destination that is ready for one."""
        self._out.requests.append((destination, self.requests.sent(destination, request, now_ms)))

    def respond(self, request: Request, response: Response) -> None:
        """Add the response to a request to the effects, with the known epoch and leader."""
        leader_id, epoch = self.leader_and_epoch
        completed = replace(
            response,
            token=request.token,
            epoch=epoch,
            leader_id=leader_id,
            leader_address=self.leader_address(),
        )
        self._out.responses.append((request, completed))

    def refuse_fetch(self, request: FetchRequest, error: ErrorCode) -> None:
        """Respond to a fetch with an error and without a high watermark, as Kafka does."""
        start = self.log.start_offset
        self.respond(request, FetchResponse(error=error, log_start_offset=start))

    @property
    def out(self) -> Effects:
        """The effects collected since the last call of `taken`."""
        return self._out

    def taken(self) -> Effects:
        """Return the effects collected since the last call, and start a new collection."""
        out, self._out = self._out, Effects()
        if self.election != self._persisted:
            stored, epoch = self._persisted.epoch, self.election.epoch
            assert epoch >= stored, f"stored_epoch={stored} epoch={epoch}"
            out.persist = self._persisted = self.election
        leadership = self.leader_and_epoch
        if leadership != self._reported:
            out.leadership = self._reported = leadership
        return out
