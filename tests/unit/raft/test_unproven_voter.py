"""A static voter that starts with an empty directory has no vote at first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.raft.config import RaftConfig
from barnabas.raft.core.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    VoteResponse,
)
from barnabas.raft.core.raft_core import RaftCore
from barnabas.raft.election_state import ElectionState
from barnabas.raft.voter_set import VoterHistory, VoterSet
from barnabas.runtime.rng import SeededRng
from unit.raft.core_requests import fetch_of, vote_of
from unit.raft.quorum_world import MemoryLog

if TYPE_CHECKING:
    from barnabas.raft.core.messages import Effects

VOTERS = (1, 2, 3)


def unproven_voter(log: MemoryLog | None = None, epoch: int = 0) -> RaftCore:
    """Return voter 3 of three, which started with an empty directory."""
    voters = VoterSet.static(VOTERS, {each: ("host", each) for each in VOTERS}, "CONTROLLER")
    core = RaftCore(
        RaftConfig(3, VOTERS, is_unproven_voter=True),
        log or MemoryLog(),
        SeededRng(1),
        ElectionState(epoch),
        VoterHistory(voters),
    )
    core.start(0)
    return core


def log_of_four() -> MemoryLog:
    log = MemoryLog()
    log.entries = [(1, "record")] * 4
    return log


def granted(effects: Effects) -> bool:
    ((_, response),) = effects.responses
    assert isinstance(response, VoteResponse)
    return response.granted


def test_an_unproven_voter_grants_no_vote_and_no_pre_vote() -> None:
    core = unproven_voter()
    assert not granted(core.step(1, vote_of(1, 5, 4, 20, pre_vote=True)))
    assert not granted(core.step(2, vote_of(1, 5, 4, 20)))
    assert core.voted_id == -1


def test_an_unproven_voter_never_becomes_a_candidate() -> None:
    core = unproven_voter()
    for now_ms in range(0, 60_000, 100):
        core.tick(now_ms)
    assert core.epoch == 0
    assert not core.is_voter


def test_an_unproven_voter_gets_its_vote_when_all_other_logs_are_empty() -> None:
    core = unproven_voter()
    core.step(1, vote_of(1, 1, 0, 0, pre_vote=True))
    assert not core.has_vote
    effects = core.step(2, fetch_of(2, 0, 0, 0))
    assert effects.has_vote
    assert core.is_voter
    assert granted(core.step(3, vote_of(1, 1, 0, 0)))


def test_a_voter_with_records_prevents_the_vote_of_an_unproven_voter() -> None:
    core = unproven_voter()
    core.step(1, vote_of(1, 2, 1, 7, pre_vote=True))
    core.step(2, fetch_of(2, 0, 0, 0))
    core.step(3, fetch_of(1, 0, 7, 1))
    assert not core.has_vote


def test_an_epoch_before_the_first_has_no_records() -> None:
    core = unproven_voter()
    destinations: list[int] = []
    # The first request got no response.
    effects = core.tick(5_000)
    while effects.requests:
        ((destination, request),) = effects.requests
        destinations.append(destination)
        effects = core.step(5_001, FetchResponse(token=request.token, epoch=0))
    assert sorted(destinations) == [1, 2]
    assert core.has_vote


def test_the_leader_does_not_count_fetches_of_an_unproven_voter() -> None:
    log = log_of_four()
    core = unproven_voter(log, epoch=1)
    effects = core.step(0, BeginQuorumEpochRequest(leader_id=1, epoch=1))
    ((_, request),) = effects.requests
    assert isinstance(request, FetchRequest)
    assert (request.source.id, request.fetch_offset) == (-1, 4)


def test_an_unproven_voter_gets_its_vote_when_a_later_record_is_committed() -> None:
    log = log_of_four()
    core = unproven_voter(log, epoch=1)
    effects = core.step(0, BeginQuorumEpochRequest(leader_id=1, epoch=1))
    ((_, request),) = effects.requests
    response = FetchResponse(token=request.token, epoch=1, leader_id=1, high_watermark=4)
    effects = core.step(1, response)
    # All records may have been committed before the leader lost its majority.
    assert not core.has_vote
    ((_, request),) = effects.requests
    response = FetchResponse(
        token=request.token, epoch=1, leader_id=1, high_watermark=4, records=b"a batch"
    )
    core.step(2, response)
    log.entries.append((1, "more"))
    effects = core.on_synced(3, 5)
    assert not core.has_vote
    ((_, request),) = effects.requests
    response = FetchResponse(token=request.token, epoch=1, leader_id=1, high_watermark=5)
    effects = core.step(4, response)
    assert effects.has_vote
    ((_, request),) = effects.requests
    assert isinstance(request, FetchRequest)
    assert request.source.id == 3
