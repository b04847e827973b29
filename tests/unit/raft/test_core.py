"""The quorum core: a single voter step by step, and three and five voters over random seeds."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.core.messages import (
    BeginQuorumEpochRequest,
    DivergingEpoch,
    FetchRequest,
    FetchResponse,
    Request,
    RequestFailed,
    VoteRequest,
    VoteResponse,
)
from barnabas.raft.election_state import NO_VOTE, ElectionState
from barnabas.raft.listener import NO_LEADER, LeaderAndEpoch, SnapshotId
from barnabas.raft.voter_set import ReplicaKey
from unit.raft.core_requests import (
    core_of,
    fetch_of,
    granted,
    make_follower,
    response_to,
    run_failures,
    token_of,
    vote_of,
)
from unit.raft.quorum_world import MemoryLog, QuorumWorld

SEEDS_3 = range(150)
SEEDS_5 = range(100)


def test_a_single_voter_becomes_leader_immediately() -> None:
    core = core_of(voters=(1,))
    effects = core.start(0)
    assert core.is_leader
    assert effects.persist == ElectionState(1, 1, NO_VOTE)
    assert effects.control_records is not None
    assert effects.control_records.leader_change is not None
    assert effects.control_records.leader_change.granting_voters == (1,)
    assert effects.leadership == LeaderAndEpoch(1, 1)
    assert effects.requests == effects.responses == []
    assert core.next_deadline() == float("inf")


def test_a_single_voter_starts_a_new_epoch_after_a_restart() -> None:
    core = core_of(voters=(1,), stored_state=ElectionState(7, 1))
    core.start(0)
    assert core.leader_and_epoch == LeaderAndEpoch(1, 8)


def test_a_record_is_committed_only_after_its_sync() -> None:
    log = MemoryLog()
    core = core_of(voters=(1,), log=log)
    core.start(0)
    log.entries.append((1, "leader"))
    assert core.on_appended(0).high_watermark is None
    assert core.high_watermark == -1
    assert core.on_synced(0, 1).high_watermark == 1


def test_a_vote_is_persisted_in_the_step_of_its_response() -> None:
    core = core_of()
    core.start(0)
    effects = core.step(0, vote_of(2, 4, 0, 0))
    assert effects.persist == ElectionState(4, NO_LEADER, 2)
    assert granted(effects)


def test_a_voter_votes_once_per_epoch() -> None:
    core = core_of()
    core.start(0)
    core.step(0, vote_of(2, 4, 0, 0))
    assert not granted(core.step(0, vote_of(3, 4, 3, 9)))
    assert granted(core.step(0, vote_of(2, 4, 0, 0)))


def test_a_vote_names_one_directory_id_of_the_candidate() -> None:
    core = core_of()
    core.start(0)
    first, second = (ReplicaKey(2, bytes([number] * 16)) for number in (1, 2))
    assert granted(core.step(0, VoteRequest(first, 4, 0, 0, pre_vote=False)))
    assert not granted(core.step(0, VoteRequest(second, 4, 0, 0, pre_vote=False)))
    assert granted(core.step(0, VoteRequest(first, 4, 0, 0, pre_vote=False)))


def test_a_candidate_with_a_shorter_log_gets_no_vote() -> None:
    log = MemoryLog()
    log.entries = [(1, "a"), (1, "b")]
    core = core_of(log=log)
    core.start(0)
    assert not granted(core.step(0, vote_of(2, 4, 1, 1)))
    assert granted(core.step(0, vote_of(3, 4, 1, 2)))


def test_a_pre_vote_changes_no_state() -> None:
    core = core_of()
    core.start(0)
    effects = core.step(0, vote_of(2, 0, 0, 0, pre_vote=True))
    assert effects.persist is None
    assert granted(effects)


def test_refused_votes_have_kafkas_error_codes() -> None:
    core = core_of(stored_state=ElectionState(5))
    core.start(0)
    assert response_to(core.step(0, vote_of(2, 4, 0, 0))).error is ErrorCode.FENCED_LEADER_EPOCH
    assert response_to(core.step(0, vote_of(2, 6, 6, 9))).error is ErrorCode.INVALID_REQUEST
    assert response_to(core.step(0, vote_of(-1, 6, 0, 0))).error is ErrorCode.INVALID_REQUEST
    wrong = VoteRequest(ReplicaKey(2), 5, 0, 0, pre_vote=False, voter=ReplicaKey(3))
    assert response_to(core.step(0, wrong)).error is ErrorCode.INVALID_VOTER_KEY


def test_a_follower_with_a_live_leader_grants_no_pre_vote() -> None:
    core = core_of()
    core.start(0)
    make_follower(core)
    assert not granted(core.step(0, vote_of(2, 1, 0, 5, pre_vote=True)))


def test_a_follower_that_lost_its_leader_connection_grants_pre_votes() -> None:
    core = core_of()
    core.start(0)
    token = make_follower(core)
    core.step(100, RequestFailed(token, is_unreachable=True))
    assert granted(core.step(101, vote_of(2, 1, 0, 5, pre_vote=True)))


def test_a_follower_that_cannot_reconnect_becomes_prospective() -> None:
    core = core_of()
    core.start(0)
    token = make_follower(core)
    core.step(100, RequestFailed(token, is_unreachable=True))
    assert core.tick(199).requests != []
    effects = core.tick(401)
    votes = [request for _, request in effects.requests if isinstance(request, VoteRequest)]
    assert [vote.pre_vote for vote in votes] == [True, True]


def test_a_short_connection_failure_causes_no_election() -> None:
    core = core_of()
    core.start(0)
    token = make_follower(core)
    core.step(100, RequestFailed(token, is_unreachable=True))
    again = token_of(core.tick(150), 3)
    core.step(199, FetchResponse(high_watermark=0, token=again, epoch=1, leader_id=3))
    assert core.tick(1_000).requests == []
    assert core.leader_and_epoch == LeaderAndEpoch(3, 1)


@pytest.mark.parametrize(
    "wrong",
    [{"diverging": DivergingEpoch(1, 1)}, {"snapshot_id": SnapshotId(1, 1)}],
    ids=["diverging epoch", "snapshot"],
)
def test_a_leader_with_a_shorter_log_does_not_truncate_committed_records(
    wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryLog()
    log.entries = [(1, "a"), (1, "b")]
    core = core_of(log=log)
    core.start(0)
    token = make_follower(core)
    commit = FetchResponse(high_watermark=2, token=token, epoch=1, leader_id=3)
    token = token_of(core.step(0, commit), 3)
    for now_ms in (0, 1000):
        response = FetchResponse(high_watermark=2, token=token, epoch=1, leader_id=3, **wrong)
        effects = core.step(now_ms, response)
        assert effects.truncate_to is None
        assert effects.requests == []
        # The follower fetches again after the backoff.
        token = token_of(core.tick(now_ms + 999), 3)
    (error,) = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert "leader=3 epoch=1 leader_has_until=1 committed=2" in error


def test_a_restarted_follower_has_caught_up_at_the_leaders_high_watermark() -> None:
    log = MemoryLog()
    log.entries = [(1, "a"), (1, "b")]
    core = core_of(log=log)
    core.start(0)
    token = token_of(core.step(0, BeginQuorumEpochRequest(3, 1)), 3)
    # The leader is known, but it has not responded yet.
    assert not core.has_caught_up(2, 1)
    behind = FetchResponse(high_watermark=3, token=token, epoch=1, leader_id=3, records=b"c")
    core.step(0, behind)
    assert not core.has_caught_up(2, 1)
    assert core.has_caught_up(3, 1)
    # A new leader returns an old high watermark until it has committed a record of its epoch.
    assert not core.has_caught_up(3, 0)


def test_a_new_leader_returns_no_high_watermark_before_a_commit_of_its_epoch() -> None:
    # A follower may know a higher one from the earlier leader, and Kafka's would end its process.
    log = MemoryLog()
    log.entries = [(1, "a"), (1, "b")]
    core = core_of(log=log)
    core.start(0)
    token = make_follower(core)
    core.step(0, FetchResponse(high_watermark=1, token=token, epoch=1, leader_id=3))
    assert core.high_watermark == 1
    election = core.tick(10_000)
    elected = core.step(10_000, VoteResponse(granted=True, token=token_of(election, 2), epoch=1))
    core.step(10_000, VoteResponse(granted=True, token=token_of(elected, 2), epoch=2))
    assert core.is_leader
    log.entries.append((2, "leader-1"))
    behind = response_to(core.step(10_000, fetch_of(2, 2, 2, 1)))
    assert isinstance(behind, FetchResponse)
    assert (behind.high_watermark, core.high_watermark) == (-1, 1)
    core.on_appended(10_000)
    core.on_synced(10_000, 3)
    current = response_to(core.step(10_000, fetch_of(2, 2, 3, 2)))
    assert isinstance(current, FetchResponse)
    assert (current.high_watermark, core.high_watermark) == (3, 3)


def test_a_former_leader_does_not_vote_again_in_its_epoch() -> None:
    core = core_of(stored_state=ElectionState(5, 1))
    core.start(0)
    assert not granted(core.step(0, vote_of(2, 5, 4, 9)))


def test_refused_fetches_have_kafkas_error_codes() -> None:
    core = core_of(voters=(1,), stored_state=ElectionState(4))
    core.start(0)

    def error(request: Request) -> ErrorCode:
        response = response_to(core.step(0, request))
        assert (response.epoch, response.leader_id) == (5, 1)
        return response.error

    assert error(fetch_of(2, 0, 0, 0)) is ErrorCode.FENCED_LEADER_EPOCH
    assert error(fetch_of(2, 6, 0, 0)) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert error(fetch_of(2, 5, -1, 0)) is ErrorCode.INVALID_REQUEST
    assert error(fetch_of(2, 5, 0, -1)) is ErrorCode.INVALID_REQUEST
    assert error(fetch_of(2, 5, 0, 6)) is ErrorCode.INVALID_REQUEST


def test_a_replica_that_does_not_lead_returns_not_leader_or_follower() -> None:
    core = core_of(stored_state=ElectionState(4, 2))
    core.start(0)
    response = response_to(core.step(0, fetch_of(3, 4, 0, 0)))
    assert response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (response.epoch, response.leader_id) == (4, 2)


def test_a_fetch_beyond_the_end_of_an_epoch_returns_the_diverging_epoch() -> None:
    log = MemoryLog()
    log.entries = [(1, "a"), (1, "b"), (3, "c")]
    core = core_of(voters=(1,), log=log, stored_state=ElectionState(3))
    core.start(0)
    response = response_to(core.step(0, fetch_of(9, 4, 5, 2)))
    assert isinstance(response, FetchResponse)
    assert response.diverging is not None
    assert (response.diverging.epoch, response.diverging.end_offset) == (1, 2)


def test_a_pending_fetch_gets_a_response_when_the_leadership_is_lost() -> None:
    log = MemoryLog()
    core = core_of(voters=(1,), log=log)
    core.start(0)
    log.entries.append((1, "leader"))
    core.on_synced(0, 1)
    waiting = FetchRequest(ReplicaKey(9), 1, 1, 1, 1, 500)
    assert core.step(1, waiting).responses == []
    response = response_to(core.resign(2))
    assert response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("voters", [3, 5])
def test_a_leader_is_elected_and_commits(voters: int) -> None:
    world = QuorumWorld(voters, seed=1)
    assert world.run_until(lambda: world.leader() is not None)
    leader = world.leader()
    assert leader is not None
    offset = world.propose(leader)
    assert world.run_until(lambda: len(world.committed) > offset)


def test_all_followers_get_the_high_watermark() -> None:
    world = QuorumWorld(3, seed=2, observers=1)
    world.run_until(lambda: world.leader() is not None)
    leader = world.leader()
    assert leader is not None
    offset = world.propose(leader)
    voters = [node for node in world.nodes if node.id in world.voters]
    assert world.run_until(lambda: all(n.core.high_watermark > offset for n in voters if n.core))


def test_a_restarted_former_leader_truncates_its_log() -> None:
    world = QuorumWorld(3, seed=3)
    world.run_until(lambda: world.leader() is not None)
    old = world.leader()
    assert old is not None
    world.run_until(lambda: len(world.committed) > 0)
    world.isolate(old.id)
    lost = world.propose(old)
    world.run_until(lambda: world.leader() not in (None, old))
    new = world.leader()
    assert new is not None
    kept = [world.propose(new) for _ in range(3)]
    world.run_until(lambda: len(world.committed) > kept[-1])
    assert old.core is not None
    assert old.core.high_watermark <= lost
    world.heal()
    assert world.run_until(lambda: old.log.entries == new.log.entries)


def test_a_leader_isolated_from_the_majority_resigns() -> None:
    world = QuorumWorld(3, seed=4)
    world.run_until(lambda: world.leader() is not None)
    old = world.leader()
    assert old is not None
    world.run_for(1000)
    world.isolate(old.id)
    assert world.run_until(lambda: old.core is not None and not old.core.is_leader, 10_000)


def test_the_first_preferred_successor_replaces_a_leader_that_resigns() -> None:
    world = QuorumWorld(3, seed=5)
    world.run_until(lambda: len(world.committed) > 0)
    old = world.leader()
    assert old is not None
    world.resign(old)
    before = world.now
    assert world.run_until(lambda: world.leader() not in (None, old))
    assert world.now - before < 1000


def test_an_isolated_voter_causes_no_election_when_it_returns() -> None:
    world = QuorumWorld(3, seed=6)
    world.run_until(lambda: len(world.committed) > 0)
    leader = world.leader()
    assert leader is not None
    assert leader.core is not None
    epoch = leader.core.epoch
    world.run_for(1000)
    world.isolate(next(n.id for n in world.nodes if n is not leader))
    world.run_for(20_000)
    world.heal()
    world.run_for(10_000)
    assert world.leader() is leader
    assert leader.core.epoch == epoch


def is_settled(world: QuorumWorld) -> bool:
    """Return whether a value proposed after the failures is committed everywhere."""
    assert world.run_until(lambda: world.leader() is not None)
    offset = -1

    def committed_somewhere() -> bool:
        nonlocal offset
        leader = world.leader()
        if leader is not None and (offset < 0 or len(leader.log.entries) <= offset):
            offset = world.propose(leader)
        return 0 <= offset < len(world.committed)

    assert world.run_until(committed_somewhere)
    voters = [node for node in world.nodes if node.id in world.voters]
    return world.run_until(
        lambda: all(n.log.entries[: offset + 1] == world.committed[: offset + 1] for n in voters)
    )


@pytest.mark.parametrize("seed", SEEDS_3)
def test_three_voters_lose_no_committed_record_under_random_failures(seed: int) -> None:
    world = QuorumWorld(3, seed)
    run_failures(world, rounds=25)
    assert is_settled(world)


@pytest.mark.parametrize("seed", SEEDS_5)
def test_five_voters_lose_no_committed_record_under_random_failures(seed: int) -> None:
    world = QuorumWorld(5, seed + 10_000)
    run_failures(world, rounds=25)
    assert is_settled(world)


def test_records_of_an_older_epoch_are_not_committed_by_replica_count() -> None:
    log = MemoryLog()
    log.entries = [(1, "old")]
    core = core_of(log=log, stored_state=ElectionState(1))
    core.start(0)
    election = core.tick(10_000)
    elected = core.step(10_000, VoteResponse(granted=True, token=token_of(election, 2), epoch=1))
    core.step(10_000, VoteResponse(granted=True, token=token_of(elected, 2), epoch=2))
    assert core.is_leader
    log.entries.append((2, "leader"))
    core.on_appended(10_000)
    core.on_synced(10_000, 2)
    core.step(10_001, fetch_of(2, 2, 1, 1))
    assert core.high_watermark == -1
    core.step(10_002, fetch_of(2, 2, 2, 2))
    assert core.high_watermark == 2
