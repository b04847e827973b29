"""Votes, and the beginning and end of epochs (KIP-595; pre-vote: KIP-996)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import ZERO_UUID
from barnabas.raft.core.messages import (
    EndQuorumEpochRequest,
    QuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from barnabas.raft.core.roles import (
    NEVER,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from barnabas.raft.election_state import NO_VOTE
from barnabas.raft.listener import NO_LEADER
from barnabas.raft.voter_set import Address

if TYPE_CHECKING:
    from barnabas.raft.core.messages import BeginQuorumEpochRequest
    from barnabas.raft.core.replica import Replica
    from barnabas.raft.voter_set import ReplicaKey

# How long a candidate that was refused a vote waits before it starts another election.
_SPLIT_VOTE_MS_MIN = 50
_SPLIT_VOTE_MS_MAX = 300
# How long a replica defers to a preferred candidate, so that the latter can collect its votes.
_YIELD_MS = 200


class Elections:
    """Election and resignation of leaders."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    # -- timers ------------------------------------------------------------------------------------

    def run_for_leader(self, now_ms: float, role: Prospective | Candidate) -> float:
        """Ask for votes and evaluate them; returns when to act next, ms."""
        replica = self._replica
        voters = replica.voters
        if not replica.is_voter:
            # A change of the voters has removed this replica.
            replica.wait_for_election(now_ms)
            return now_ms
        if len(role.granted & set(voters.ids)) >= voters.majority:
            if isinstance(role, Candidate):
                replica.to_leader(now_ms)
                return now_ms
            if role.yields_until is not None and now_ms < role.yields_until:
                return role.yields_until
            replica.to_candidate(now_ms)
            return now_ms
        is_lost = len(role.rejected & set(voters.ids)) > len(voters) - voters.majority
        if isinstance(role, Prospective) and (is_lost or now_ms >= role.election_deadline):
            self._give_up(now_ms, role)
            return now_ms
        if now_ms >= role.election_deadline:
            replica.to_prospective(now_ms, NO_LEADER)
            return now_ms
        return self._ask_for_votes(now_ms, role)

    def _ask_for_votes(self, now_ms: float, role: Prospective | Candidate) -> float:
        replica = self._replica
        due = role.election_deadline
        for voter in replica.voters:
            if voter.key.id in role.granted or voter.key.id in role.rejected:
                continue
            ready_at = replica.requests.ready_at(voter.key.id)
            if ready_at > now_ms:
                due = min(due, ready_at)
                continue
            request = VoteRequest(
                replica.config.key,
                replica.epoch,
                replica.log.last_epoch,
                replica.log.end_offset,
                isinstance(role, Prospective),
                voter.key,
            )
            replica.send(now_ms, voter.key.id, request)
            due = min(due, replica.requests.ready_at(voter.key.id))
        return due

    def _give_up(self, now_ms: float, role: Prospective) -> None:
        """Return to the lost leader, or wait, because no majority granted its pre-vote."""
        replica = self._replica
        if role.lost_leader_id != NO_LEADER:
            replica.to_follower(now_ms, replica.epoch, role.lost_leader_id, None)
        else:
            replica.wait_for_election(now_ms)

    def send_end_quorum_epoch(self, now_ms: float, role: Resigned) -> float:
        """Send EndQuorumEpoch to the voters; returns when to act next, ms."""
        replica = self._replica
        due = role.election_deadline if replica.is_voter else NEVER
        if now_ms >= due:
            replica.to_prospective(now_ms, NO_LEADER)
            return now_ms
        for voter in sorted(role.unacknowledged):
            if replica.requests.ready_at(voter) <= now_ms:
                own = replica.config.advertised.get(replica.config.listener_name)
                request = EndQuorumEpochRequest(
                    replica.me,
                    replica.epoch,
                    role.preferred_candidates,
                    None if own is None else Address(*own),
                )
                replica.send(now_ms, voter, request)
            due = min(due, replica.requests.ready_at(voter))
        return due

    # -- votes -------------------------------------------------------------------------------------

    def on_vote_request(self, now_ms: float, request: VoteRequest) -> None:
        """Grant or refuse a vote."""
        error, granted = self._check_vote(now_ms, request)
        self._replica.respond(request, VoteResponse(error=error, granted=granted))

    def _check_vote(self, now_ms: float, request: VoteRequest) -> tuple[ErrorCode, bool]:
        replica = self._replica
        is_legal = (
            request.last_epoch <= request.epoch
            if request.pre_vote
            else request.last_epoch < request.epoch
        )
        if not is_legal or request.last_epoch < 0 or request.end_offset < 0:
            return ErrorCode.INVALID_REQUEST, False
        if request.epoch < replica.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, False
        if request.source.id < 0:
            return ErrorCode.INVALID_REQUEST, False
        if request.end_offset == 0:
            replica.note_empty(request.source.id)
        if request.epoch > replica.epoch:
            replica.to_unattached(now_ms, request.epoch)
        if not self._is_addressed(request.voter):
            return ErrorCode.INVALID_VOTER_KEY, False
        return ErrorCode.NONE, self._grants(now_ms, request)

    def _is_addressed(self, voter: ReplicaKey | None) -> bool:
        """Return whether a request that names its receiver names this replica."""
        if voter is None:
            return True
        own = self._replica.config.key
        return voter.id == own.id and voter.directory_id in (ZERO_UUID, own.directory_id)

    def _grants(self, now_ms: float, request: VoteRequest) -> bool:
        replica = self._replica
        if replica.unproven_voter is not None:
            # This replica may have voted for another candidate and have lost that vote.
            return False
        ours = (replica.log.last_epoch, replica.log.end_offset)
        if (request.last_epoch, request.end_offset) < ours:
            return False
        role = replica.role
        if request.pre_vote:
            # A follower that hears from its leader does not help to replace that leader.
            if isinstance(role, Follower):
                return self._follower_grants(now_ms, role)
            if isinstance(role, Prospective):
                self._maybe_yield(now_ms, role, request)
            # A candidate has already sent its vote requests; a second candidate would split the
            # votes.
            return not isinstance(role, Leader | Candidate)
        if not isinstance(role, Unattached | Prospective):
            return False
        election = replica.election
        if election.leader_id != NO_LEADER:
            return False
        if election.voted_id == NO_VOTE:
            replica.vote_for(now_ms, request.source)
            return True
        directory_ids = (ZERO_UUID, request.source.directory_id)
        is_same = election.voted_id == request.source.id
        return is_same and election.voted_directory_id in directory_ids

    def _follower_grants(self, now_ms: float, role: Follower) -> bool:
        """Return whether this follower grants a pre-vote, and defer to the candidate once.

        The follower grants it if the leader is lost, has resigned, or has never responded.
        """
        if role.lost_deadline < NEVER and not role.has_yielded:
            role.has_yielded = True
            role.lost_deadline = max(role.lost_deadline, now_ms + _YIELD_MS)
        return not role.has_fetched or role.has_resigned or role.lost_deadline < NEVER

    def _maybe_yield(self, now_ms: float, role: Prospective, request: VoteRequest) -> None:
        """Defer to a concurrent candidate that has more records, or as many and a smaller id.

        Otherwise both replicas would get each other's pre-vote, become candidates of the same
        epoch, and vote for themselves.
        """
        replica = self._replica
        ours = (replica.log.last_epoch, replica.log.end_offset, -replica.me)
        theirs = (request.last_epoch, request.end_offset, -request.source.id)
        if role.yields_until is None and theirs > ours:
            role.yields_until = now_ms + _YIELD_MS

    def on_vote_response(
        self, now_ms: float, request: VoteRequest, voter: int, response: VoteResponse
    ) -> None:
        """Count a vote. `request` was sent in the current role."""
        role = self._replica.role
        assert isinstance(role, Prospective | Candidate), role
        assert request.pre_vote == isinstance(role, Prospective)
        if response.error is not ErrorCode.NONE:
            return
        if response.granted:
            role.granted.add(voter)
            return
        role.rejected.add(voter)
        if isinstance(role, Candidate):
            # The votes may be split so that no candidate wins. The first to retry will win.
            delay_ms = self._replica.rng.randint(_SPLIT_VOTE_MS_MIN, _SPLIT_VOTE_MS_MAX)
            role.election_deadline = min(role.election_deadline, now_ms + delay_ms)

    # -- epoch begin and end -----------------------------------------------------------------------

    def on_begin_quorum_epoch(self, now_ms: float, request: BeginQuorumEpochRequest) -> None:
        """Handle the announcement of a new leader."""
        error = self._learn_leader(now_ms, request)
        if error is ErrorCode.NONE and not self._is_addressed(request.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        self._replica.respond(request, QuorumEpochResponse(error=error))

    def on_end_quorum_epoch(self, now_ms: float, request: EndQuorumEpochRequest) -> None:
        """Handle the leader's resignation, and wait for this voter's turn to run for leader."""
        replica = self._replica
        error = self._learn_leader(now_ms, request)
        role = replica.role
        if (
            error is ErrorCode.NONE
            and isinstance(role, Follower)
            and role.leader_id == request.leader_id
        ):
            role.has_resigned = True
            role.fetch_deadline = now_ms + self._wait_for_turn(request.preferred_candidates)
        replica.respond(request, QuorumEpochResponse(error=error))

    def _learn_leader(
        self, now_ms: float, request: BeginQuorumEpochRequest | EndQuorumEpochRequest
    ) -> ErrorCode:
        replica = self._replica
        if request.epoch < replica.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.leader_id < 0:
            return ErrorCode.INVALID_REQUEST
        known = replica.election
        if request.epoch == known.epoch and known.leader_id not in (NO_LEADER, request.leader_id):
            # Two leaders of one epoch: the files of one side must have been changed.
            return ErrorCode.INVALID_REQUEST
        replica.learn(now_ms, request.epoch, request.leader_id, request.address)
        role = replica.role
        if isinstance(role, Follower) and request.address is not None:
            role.leader_address = request.address
        return ErrorCode.NONE

    def _wait_for_turn(self, candidates: tuple[ReplicaKey, ...]) -> float:
        """Return how long to wait before running for leader, ms.

        The first candidate waits 0 ms; each later one waits twice as long as the one before it.
        """
        config = self._replica.config
        ids = [each.id for each in candidates]
        place = ids.index(config.node_id) if config.node_id in ids else len(ids)
        if place == 0 and ids:
            return 0.0
        spread = self._replica.rng.randint(0, 50)
        return min(100 << min(place, 10), config.election_backoff_max_ms) + spread

    def on_quorum_epoch_response(self, voter: int, response: QuorumEpochResponse) -> None:
        """Note that a voter has acknowledged the resignation.

        Responses to BeginQuorumEpoch need no action, because the voter's fetches show that it
        follows.
        """
        role = self._replica.role
        if response.error is ErrorCode.NONE and isinstance(role, Resigned):
            role.unacknowledged.discard(voter)
