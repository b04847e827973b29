"""Of two voters that lose their leader at the same time, one defers to the other."""

from __future__ import annotations

import pytest

from barnabas.raft.core.messages import RequestFailed, VoteRequest, VoteResponse
from barnabas.raft.core.raft_core import RaftCore
from barnabas.raft.core.roles import Candidate, Follower, Prospective
from barnabas.raft.voter_set import ReplicaKey
from unit.raft.core_requests import core_of, granted, make_follower, token_of, vote_of

YIELD_MS = 200.0
# By this time the fetch timeout of the leader, voter 3, has elapsed.
LOST_MS = 10_000.0


def prospective(node_id: int) -> tuple[RaftCore, int, int]:
    """Return a prospective voter, the other voter, and the token of the request to it."""
    core = core_of(node_id)
    core.start(0)
    make_follower(core)
    other = 3 - node_id
    effects = core.tick(LOST_MS)
    assert isinstance(core.role, Prospective)
    return core, other, token_of(effects, other)


def pre_vote(source: int, end_offset: int = 0) -> VoteRequest:
    return vote_of(source, 1, 0, end_offset, pre_vote=True)


def granted_vote(token: int) -> VoteResponse:
    return VoteResponse(granted=True, token=token, epoch=1)


def test_with_equal_logs_the_voter_with_the_smaller_id_has_precedence() -> None:
    first, _, its_token = prospective(1)
    second, _, token = prospective(2)
    assert granted(first.step(LOST_MS, pre_vote(2)))
    assert granted(second.step(LOST_MS, pre_vote(1)))
    first.step(LOST_MS + 1, granted_vote(its_token))
    second.step(LOST_MS + 1, granted_vote(token))
    assert isinstance(first.role, Candidate)
    assert isinstance(second.role, Prospective)
    assert granted(second.step(LOST_MS + 2, vote_of(1, 2, 0, 0)))


def test_the_voter_with_the_longer_log_has_precedence() -> None:
    core, other, token = prospective(1)
    core.step(LOST_MS, pre_vote(other, end_offset=7))
    core.step(LOST_MS + 1, granted_vote(token))
    assert isinstance(core.role, Prospective)


@pytest.mark.parametrize("again_ms", [50.0, 150.0, 199.0])
def test_a_voter_without_responses_does_not_delay_other_candidates(again_ms: float) -> None:
    core, other, token = prospective(2)
    core.step(LOST_MS, pre_vote(other))
    core.step(LOST_MS + 1, granted_vote(token))
    core.step(LOST_MS + again_ms, pre_vote(other))
    assert isinstance(core.role, Prospective)
    core.tick(LOST_MS + YIELD_MS)
    assert isinstance(core.role, Candidate)


def test_a_candidate_grants_no_other_pre_vote() -> None:
    core, other, token = prospective(1)
    core.step(LOST_MS + 1, granted_vote(token))
    assert isinstance(core.role, Candidate)
    request = VoteRequest(ReplicaKey(other), 2, 0, 0, pre_vote=True)
    assert not granted(core.step(LOST_MS + 2, request))


def test_a_follower_that_granted_a_pre_vote_delays_its_own_election() -> None:
    core = core_of()
    core.start(0)
    core.step(100, RequestFailed(make_follower(core), is_unreachable=True))
    assert granted(core.step(300, pre_vote(2)))
    core.tick(300 + YIELD_MS - 1)
    assert isinstance(core.role, Follower)
    # A second granted pre-vote causes no second delay.
    core.step(300 + YIELD_MS - 1, pre_vote(2))
    core.tick(300 + YIELD_MS)
    assert isinstance(core.role, Prospective)
