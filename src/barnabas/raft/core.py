"""The quorum's rules without any input or output: step and tick in, Effects out (KIP-595, KIP-996).

The caller carries out each Effects as a whole, in the order of its fields, before the next call.
All randomness comes from the given source and all time from the `now_ms` of each call, so that the
same calls give the same effects.

Invariants, asserted where they could break: the epoch never goes back; within an epoch the leader,
once known, does not change; the high watermark never goes back; nothing below it is truncated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.raft.effects import Effects, LeaderChange
from barnabas.raft.election_state import NO_VOTE, ElectionState
from barnabas.raft.leading import (
    answer_fetch,
    committed_end,
    has_lost_quorum,
    next_leader_deadline,
    successors,
)
from barnabas.raft.listener import NO_LEADER, LeaderAndEpoch
from barnabas.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    Message,
    QuorumEpochResponse,
    Refusal,
    VoteRequest,
    VoteResponse,
)
from barnabas.raft.roles import (
    NEVER,
    Candidate,
    Follower,
    Leader,
    ParkedFetch,
    Prospective,
    ReplicaState,
    Resigned,
    Role,
    Unattached,
)

if TYPE_CHECKING:
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.log_view import LogView
    from barnabas.runtime.rng import Rng

# How long to wait before asking a leader again that turned a fetch down.
_RETRY_BACKOFF_MS = 100


class RaftCore:
    """One replica's part in the quorum."""

    def __init__(
        self, config: RaftConfig, log: LogView, rng: Rng, remembered: ElectionState
    ) -> None:
        self._config = config
        self._log = log
        self._rng = rng
        # What this replica knows of the election of its epoch; equal to the disk after each step.
        self._election = remembered
        self._persisted = remembered
        self._told = LeaderAndEpoch(NO_LEADER, -1)
        # All records below are on a majority of the voters. Moved by the leader's count, or on a
        # follower by what the leader says. Never goes back.
        self.high_watermark = -1
        # The own log is on disk up to here; at the start all of it is.
        self._synced_end = log.end_offset
        self.role: Role = Unattached(NEVER)
        self._out = Effects()

    # -- what callers ask -------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch this replica is in."""
        return self._election.epoch

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads its epoch."""
        return isinstance(self.role, Leader)

    @property
    def is_voter(self) -> bool:
        """Whether this replica is a voter; else it is an observer."""
        return self._config.node_id in self._config.voters

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """Who leads, as far as this replica knows; nobody after a resignation."""
        resigned = isinstance(self.role, Resigned)
        return LeaderAndEpoch(NO_LEADER if resigned else self._election.leader_id, self.epoch)

    @property
    def epoch_start_offset(self) -> int | None:
        """Offset of the leader's own LeaderChange record; None unless this replica leads."""
        return self.role.epoch_start_offset if isinstance(self.role, Leader) else None

    def next_deadline(self) -> float:
        """When `tick` is due next; infinite for a voter that is alone."""
        role = self.role
        if isinstance(role, Leader):
            return next_leader_deadline(role, self._config)
        if isinstance(role, Follower):
            lost = NEVER if role.request_deadline is None else role.request_deadline
            return min(role.fetch_deadline, lost)
        if isinstance(role, Resigned):
            return min(role.election_deadline, role.resend_at)
        return role.election_deadline

    # -- what happens -----------------------------------------------------------------------------

    def start(self, now_ms: float) -> Effects:
        """Take up what was remembered; a voter that is alone leads when this returns."""
        remembered = self._election
        if self._is_alone:
            self._to_candidate(now_ms)
        elif remembered.leader_id == self._config.node_id:
            self._to_resigned(now_ms)
        elif remembered.leader_id != NO_LEADER:
            self._to_follower(now_ms, remembered.epoch, remembered.leader_id)
        else:
            self.role = Unattached(self._election_deadline(now_ms))
        return self._taken()

    def tick(self, now_ms: float) -> Effects:
        """Time has passed; harmless at any time."""
        match self.role:
            case Unattached() as role if now_ms >= role.election_deadline:
                self._to_prospective(now_ms, NO_LEADER)
            case Prospective() as role if now_ms >= role.election_deadline:
                self._give_up_pre_vote(now_ms, role)
            case Candidate() as role if now_ms >= role.election_deadline:
                self._to_prospective(now_ms, NO_LEADER)
            case Follower() as role:
                self._tick_follower(now_ms, role)
            case Leader() as role:
                self._tick_leader(now_ms, role)
            case Resigned() as role:
                self._tick_resigned(now_ms, role)
            case _:
                pass
        return self._taken()

    def step(self, now_ms: float, message: Message) -> Effects:
        """A message arrived."""
        match message:
            case VoteRequest():
                self._on_vote_request(now_ms, message)
            case VoteResponse():
                self._on_vote_response(now_ms, message)
            case BeginQuorumEpochRequest():
                self._on_begin_quorum_epoch(now_ms, message)
            case EndQuorumEpochRequest():
                self._on_end_quorum_epoch(now_ms, message)
            case QuorumEpochResponse():
                self._on_quorum_epoch_response(now_ms, message)
            case FetchRequest():
                self._on_fetch(now_ms, message)
            case FetchResponse():
                self._on_fetch_response(now_ms, message)
        return self._taken()

    def on_appended(self, now_ms: float) -> Effects:
        """As leader: records were written at the log end; who waits for them is answered."""
        if isinstance(self.role, Leader):
            self._answer_parked(now_ms, self.role)
        return self._taken()

    def on_synced(self, now_ms: float, end_offset: int) -> Effects:
        """The log is on disk up to `end_offset`; not called for what was truncated meanwhile."""
        self._synced_end = max(self._synced_end, end_offset)
        match self.role:
            case Leader() as role:
                role.synced_offset = max(role.synced_offset, end_offset)
                self._maybe_commit(now_ms, role)
            case Follower(syncing_to=expected) as role if expected is not None:
                if end_offset >= self._log.end_offset:
                    role.syncing_to = None
                    self._move_high_watermark(min(expected, end_offset))
                    self._fetch(now_ms, role)
            case _:
                pass
        return self._taken()

    def resign(self, now_ms: float) -> Effects:
        """Step down if leading, telling the others who should be next."""
        if isinstance(self.role, Leader):
            self._to_resigned(now_ms)
        return self._taken()

    # -- transitions ------------------------------------------------------------------------------

    def _to_unattached(self, now_ms: float, epoch: int) -> None:
        assert epoch > self.epoch, (epoch, self.epoch)
        self._election = ElectionState(epoch)
        self.role = Unattached(self._election_deadline(now_ms))

    def _to_prospective(self, now_ms: float, lost_leader_id: int) -> None:
        assert self.is_voter
        assert not isinstance(self.role, Leader)
        if self._is_alone:
            self._to_candidate(now_ms)
            return
        me = self._config.node_id
        self.role = Prospective(
            self._election_deadline(now_ms), {me}, lost_leader_id=lost_leader_id
        )
        self._ask_for_votes(pre_vote=True)

    def _to_candidate(self, now_ms: float) -> None:
        assert self.is_voter
        me = self._config.node_id
        self._election = ElectionState(self.epoch + 1, NO_LEADER, me)
        self.role = Candidate(self._election_deadline(now_ms), {me})
        if self._is_alone:
            self._to_leader(now_ms, self.role)
        else:
            self._ask_for_votes(pre_vote=False)

    def _to_leader(self, now_ms: float, candidate: Candidate) -> None:
        assert len(candidate.granted) >= self._majority
        me = self._config.node_id
        self._election = ElectionState(self.epoch, me)
        granting = tuple(sorted(candidate.granted))
        self.role = Leader(
            epoch_start_offset=self._log.end_offset,
            granting_voters=granting,
            synced_offset=self._synced_end,
            voters={each: ReplicaState() for each in self._config.voters if each != me},
            check_quorum_deadline=now_ms + self._config.fetch_timeout_ms * 1.5,
        )
        voters = tuple(sorted(self._config.voters))
        self._out.leader_change = LeaderChange(me, self.epoch, voters, granting)
        self._tell_begin(now_ms, self.role)

    def _to_follower(self, now_ms: float, epoch: int, leader_id: int) -> None:
        assert epoch >= self.epoch, (epoch, self.epoch)
        assert leader_id not in (NO_LEADER, self._config.node_id), leader_id
        known = self._election
        if epoch == known.epoch:
            assert known.leader_id in (NO_LEADER, leader_id), (known, leader_id)
            self._election = replace(known, leader_id=leader_id)
        else:
            self._election = ElectionState(epoch, leader_id)
        patience = self._config.fetch_timeout_ms if self.is_voter else NEVER
        role = Follower(leader_id, now_ms + patience)
        self.role = role
        self._fetch(now_ms, role)

    def _to_resigned(self, now_ms: float) -> None:
        others = {each for each in self._config.voters if each != self._config.node_id}
        preferred = successors(self.role) if isinstance(self.role, Leader) else ()
        if isinstance(self.role, Leader):
            for parked in self.role.parked.values():
                self._refuse_fetch(parked.request, Refusal.NOT_LEADER)
        role = Resigned(self._election_deadline(now_ms), others, preferred)
        self.role = role
        self._tell_end(now_ms, role)

    def _give_up_pre_vote(self, now_ms: float, role: Prospective) -> None:
        """Nobody else wants an election: back to the leader we lost, or wait and try again."""
        if role.lost_leader_id != NO_LEADER:
            self._to_follower(now_ms, self.epoch, role.lost_leader_id)
        else:
            backoff = self._rng.randint(0, self._config.election_backoff_max_ms)
            self.role = Unattached(now_ms + backoff)

    # -- elections --------------------------------------------------------------------------------

    def _ask_for_votes(self, pre_vote: bool) -> None:
        request = VoteRequest(
            self._config.node_id,
            self.epoch,
            self._log.last_epoch,
            self._log.end_offset,
            pre_vote,
        )
        for voter in sorted(self._config.voters):
            if voter != self._config.node_id:
                self._send(voter, request)

    def _on_vote_request(self, now_ms: float, request: VoteRequest) -> None:
        granted = False
        if self.is_voter and request.source in self._config.voters:
            if request.epoch > self.epoch:
                self._to_unattached(now_ms, request.epoch)
            if request.epoch == self.epoch:
                granted = self._grants(now_ms, request)
        self._send(
            request.source,
            VoteResponse(
                self._config.node_id,
                self.epoch,
                self._election.leader_id,
                granted,
                request.pre_vote,
                request.epoch,
            ),
        )

    def _grants(self, now_ms: float, request: VoteRequest) -> bool:
        ours = (self._log.last_epoch, self._log.end_offset)
        if (request.last_epoch, request.end_offset) < ours:
            return False
        if request.pre_vote:
            # Who hears from a leader does not help to depose it.
            followed = isinstance(self.role, Follower) and self.role.has_fetched
            return not followed and not isinstance(self.role, Leader)
        election = self._election
        if election.leader_id != NO_LEADER or election.voted_id not in (NO_VOTE, request.source):
            return False
        self._election = replace(election, voted_id=request.source)
        self.role = Unattached(self._election_deadline(now_ms))
        return True

    def _on_vote_response(self, now_ms: float, response: VoteResponse) -> None:
        if not self._accepts(now_ms, response) or response.request_epoch != self.epoch:
            return
        match self.role:
            case Prospective() as role if response.pre_vote:
                _count(role, response)
                if len(role.granted) >= self._majority:
                    self._to_candidate(now_ms)
                elif len(role.rejected) > len(self._config.voters) - self._majority:
                    self._give_up_pre_vote(now_ms, role)
            case Candidate() as role if not response.pre_vote:
                _count(role, response)
                if len(role.granted) >= self._majority:
                    self._to_leader(now_ms, role)
            case _:
                pass

    def _accepts(
        self, now_ms: float, response: VoteResponse | QuorumEpochResponse | FetchResponse
    ) -> bool:
        """Learn epoch and leader from a response; whether it may still matter to our role."""
        if response.epoch < self.epoch:
            return False
        news = response.leader_id not in (NO_LEADER, self._config.node_id)
        if response.epoch > self.epoch:
            if news:
                self._to_follower(now_ms, response.epoch, response.leader_id)
            else:
                self._to_unattached(now_ms, response.epoch)
            return False
        if news and self._election.leader_id == NO_LEADER:
            self._to_follower(now_ms, response.epoch, response.leader_id)
            return False
        return True

    # -- beginning and end of an epoch ------------------------------------------------------------

    def _on_begin_quorum_epoch(self, now_ms: float, request: BeginQuorumEpochRequest) -> None:
        if request.epoch < self.epoch:
            self._answer_epoch(request.source, Refusal.FENCED_LEADER_EPOCH)
            return
        following = isinstance(self.role, Follower) and request.epoch == self.epoch
        if not following:
            self._to_follower(now_ms, request.epoch, request.source)
        self._answer_epoch(request.source, None)

    def _on_end_quorum_epoch(self, now_ms: float, request: EndQuorumEpochRequest) -> None:
        if request.epoch < self.epoch:
            self._answer_epoch(request.source, Refusal.FENCED_LEADER_EPOCH)
            return
        if request.epoch > self.epoch:
            self._to_unattached(now_ms, request.epoch)
        # The leader of an epoch is a fact that outlives its resignation.
        self._election = replace(self._election, leader_id=request.source)
        if self.is_voter and not isinstance(self.role, Candidate | Prospective | Leader):
            candidates = request.preferred_candidates
            me = self._config.node_id
            if candidates and candidates[0] == me:
                self._to_prospective(now_ms, NO_LEADER)
            else:
                place = candidates.index(me) if me in candidates else len(candidates)
                self.role = Unattached(now_ms + self._backoff(place + 1))
        self._answer_epoch(request.source, None)

    def _answer_epoch(self, destination: int, refusal: Refusal | None) -> None:
        self._send(
            destination,
            QuorumEpochResponse(
                self._config.node_id, self.epoch, self._election.leader_id, refusal
            ),
        )

    def _on_quorum_epoch_response(self, now_ms: float, response: QuorumEpochResponse) -> None:
        if self._accepts(now_ms, response) and isinstance(self.role, Resigned):
            self.role.unacknowledged.discard(response.source)

    # -- following --------------------------------------------------------------------------------

    def _fetch(self, now_ms: float, role: Follower) -> None:
        role.request_deadline = now_ms + self._config.request_timeout_ms
        self._send(
            role.leader_id,
            FetchRequest(
                self._config.node_id,
                self.epoch,
                self._log.end_offset,
                self._log.last_epoch,
                self.high_watermark,
            ),
        )

    def _on_fetch_response(self, now_ms: float, response: FetchResponse) -> None:
        if not self._accepts(now_ms, response):
            return
        role = self.role
        if not isinstance(role, Follower) or response.source != role.leader_id:
            return
        if role.request_deadline is None or response.fetch_offset != self._log.end_offset:
            return
        if response.refusal is not None:
            role.request_deadline = now_ms + _RETRY_BACKOFF_MS
            return
        role.request_deadline = None
        role.has_fetched = True
        if self.is_voter:
            role.fetch_deadline = now_ms + self._config.fetch_timeout_ms
        if response.diverging is not None:
            self._truncate(response.diverging.epoch, response.diverging.end_offset)
        elif response.records:
            self._out.append = response.records
            role.syncing_to = response.high_watermark
            return
        else:
            self._move_high_watermark(min(response.high_watermark, self._log.end_offset))
        self._fetch_after_truncation(now_ms, role)

    def _fetch_after_truncation(self, now_ms: float, role: Follower) -> None:
        """Fetch again, from where the log will end once these effects are carried out."""
        cut = self._out.truncate_to
        if cut is None:
            self._fetch(now_ms, role)
            return
        role.request_deadline = now_ms

    def _truncate(self, epoch: int, end_offset: int) -> None:
        own_epoch, own_end = self._log.end_offset_for_epoch(epoch)
        cut = min(end_offset, own_end) if own_epoch >= 0 else 0
        assert cut >= self.high_watermark, (cut, self.high_watermark)
        self._out.truncate_to = cut
        self._synced_end = min(self._synced_end, cut)

    def _tick_follower(self, now_ms: float, role: Follower) -> None:
        if now_ms >= role.fetch_deadline:
            self._to_prospective(now_ms, role.leader_id)
        elif role.request_deadline is not None and now_ms >= role.request_deadline:
            self._fetch(now_ms, role)

    # -- leading ----------------------------------------------------------------------------------

    def _on_fetch(self, now_ms: float, request: FetchRequest) -> None:
        if request.epoch < self.epoch:
            self._refuse_fetch(request, Refusal.FENCED_LEADER_EPOCH)
            return
        if request.epoch > self.epoch:
            self._to_unattached(now_ms, request.epoch)
        role = self.role
        if not isinstance(role, Leader):
            self._refuse_fetch(request, Refusal.NOT_LEADER)
            return
        answer = answer_fetch(self._config.node_id, self.epoch, self._log, request)
        if answer.diverging is None:
            group = role.voters if request.source in role.voters else role.observers
            state = group.setdefault(request.source, ReplicaState())
            state.end_offset = request.fetch_offset
            state.last_fetch_ms = now_ms
            self._maybe_commit(now_ms, role)
            has_news = request.fetch_offset < self._log.end_offset
            if not has_news and request.high_watermark >= self.high_watermark:
                deadline = now_ms + self._config.fetch_max_wait_ms
                role.parked[request.source] = ParkedFetch(request, deadline)
                return
        self._send(request.source, replace(answer, high_watermark=self.high_watermark))

    def _refuse_fetch(self, request: FetchRequest, refusal: Refusal) -> None:
        self._send(
            request.source,
            FetchResponse(
                self._config.node_id,
                self.epoch,
                self.leader_and_epoch.leader_id,
                request.fetch_offset,
                refusal=refusal,
            ),
        )

    def _maybe_commit(self, now_ms: float, role: Leader) -> None:
        end = committed_end(role)
        # An older epoch's records are committed only through one of the own epoch above them.
        if end > role.epoch_start_offset and end > self.high_watermark:
            self._move_high_watermark(end)
            self._answer_parked(now_ms, role)

    def _answer_parked(self, now_ms: float, role: Leader, due_only: bool = False) -> None:
        for source, parked in list(role.parked.items()):
            request = parked.request
            has_news = (
                request.fetch_offset < self._log.end_offset
                or request.high_watermark < self.high_watermark
            )
            if now_ms >= parked.deadline or (has_news and not due_only):
                del role.parked[source]
                answer = answer_fetch(self._config.node_id, self.epoch, self._log, request)
                self._send(source, replace(answer, high_watermark=self.high_watermark))

    def _tick_leader(self, now_ms: float, role: Leader) -> None:
        if has_lost_quorum(role, now_ms, self._config, self._majority):
            self._to_resigned(now_ms)
            return
        self._answer_parked(now_ms, role, due_only=True)
        self._tell_begin(now_ms, role)

    def _tell_begin(self, now_ms: float, role: Leader) -> None:
        """Make the epoch known to each voter that does not fetch, again every half time-out."""
        patience = self._config.fetch_timeout_ms / 2
        for voter in sorted(role.voters):
            state = role.voters[voter]
            if max(state.last_fetch_ms, state.begin_sent_ms) + patience <= now_ms:
                state.begin_sent_ms = now_ms
                self._send(voter, BeginQuorumEpochRequest(self._config.node_id, self.epoch))

    # -- stepping down ----------------------------------------------------------------------------

    def _tick_resigned(self, now_ms: float, role: Resigned) -> None:
        if now_ms >= role.election_deadline:
            self._to_prospective(now_ms, NO_LEADER)
        elif now_ms >= role.resend_at:
            self._tell_end(now_ms, role)

    def _tell_end(self, now_ms: float, role: Resigned) -> None:
        role.resend_at = now_ms + self._config.request_timeout_ms if role.unacknowledged else NEVER
        for voter in sorted(role.unacknowledged):
            self._send(
                voter,
                EndQuorumEpochRequest(self._config.node_id, self.epoch, role.preferred_candidates),
            )

    # -- small parts ------------------------------------------------------------------------------

    @property
    def _majority(self) -> int:
        return len(self._config.voters) // 2 + 1

    @property
    def _is_alone(self) -> bool:
        return tuple(self._config.voters) == (self._config.node_id,)

    def _election_deadline(self, now_ms: float) -> float:
        if not self.is_voter:
            return NEVER
        timeout = self._config.election_timeout_ms
        return now_ms + timeout + self._rng.randint(0, timeout)

    def _backoff(self, place: int) -> float:
        """Wait of the candidate in that place of the line, so that they do not all run at once."""
        longest = self._config.election_backoff_max_ms
        return min(100 << min(place, 10), longest) + self._rng.randint(0, 50)

    def _move_high_watermark(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = self._out.high_watermark = offset

    def _send(self, destination: int, message: Message) -> None:
        self._out.messages.append((destination, message))

    def _taken(self) -> Effects:
        """The effects gathered since the last call."""
        out, self._out = self._out, Effects()
        if self._election != self._persisted:
            assert self._election.epoch >= self._persisted.epoch
            out.persist = self._persisted = self._election
        leadership = self.leader_and_epoch
        if leadership != self._told:
            out.leadership = self._told = leadership
        return out


def _count(role: Prospective | Candidate, response: VoteResponse) -> None:
    (role.granted if response.granted else role.rejected).add(response.source)
