"""The quorum core: single voter by hand, three and five voters over hundreds of seeds."""

from __future__ import annotations

import pytest

from barnabas.raft.config import RaftConfig
from barnabas.raft.core import RaftCore
from barnabas.raft.election_state import NO_VOTE, ElectionState
from barnabas.raft.listener import NO_LEADER, LeaderAndEpoch
from barnabas.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    Refusal,
    VoteRequest,
    VoteResponse,
)
from barnabas.runtime.rng import SeededRng
from unit.raft.quorum_world import MemoryLog, QuorumWorld

SEEDS_3 = range(150)
SEEDS_5 = range(100)


def core_of(
    node_id: int = 1,
    voters: tuple[int, ...] = (1, 2, 3),
    log: MemoryLog | None = None,
    remembered: ElectionState | None = None,
) -> RaftCore:
    return RaftCore(
        RaftConfig(node_id, voters),
        log or MemoryLog(),
        SeededRng(1),
        remembered or ElectionState(),
    )


def test_a_voter_that_is_alone_leads_at_once() -> None:
    core = core_of(voters=(1,))
    effects = core.start(0)
    assert core.is_leader
    assert effects.persist == ElectionState(1, 1, NO_VOTE)
    assert effects.leader_change is not None
    assert effects.leader_change.granting_voters == (1,)
    assert effects.leadership == LeaderAndEpoch(1, 1)
    assert effects.messages == []
    assert core.next_deadline() == float("inf")


def test_a_voter_that_is_alone_leads_in_a_new_epoch_after_a_restart() -> None:
    core = core_of(voters=(1,), remembered=ElectionState(7, 1))
    core.start(0)
    assert core.leader_and_epoch == LeaderAndEpoch(1, 8)


def test_nothing_is_committed_before_it_is_synced() -> None:
    log = MemoryLog()
    core = core_of(voters=(1,), log=log)
    core.start(0)
    log.entries.append((1, "leader"))
    assert core.on_appended(0).high_watermark is None
    assert core.high_watermark == -1
    assert core.on_synced(0, 1).high_watermark == 1


def test_a_vote_is_persisted_in_the_step_that_answers() -> None:
    core = core_of()
    core.start(0)
    effects = core.step(0, VoteRequest(2, 4, 0, 0, pre_vote=False))
    assert effects.persist == ElectionState(4, NO_LEADER, 2)
    (destination, answer), *_ = effects.messages
    assert destination == 2
    assert isinstance(answer, VoteResponse)
    assert answer.granted


def test_nobody_gets_two_votes_in_one_epoch() -> None:
    core = core_of()
    core.start(0)
    core.step(0, VoteRequest(2, 4, 0, 0, pre_vote=False))
    effects = core.step(0, VoteRequest(3, 4, 9, 9, pre_vote=False))
    assert isinstance(effects.messages[0][1], VoteResponse)
    assert not effects.messages[0][1].granted


def test_a_candidate_with_a_shorter_log_gets_no_vote() -> None:
    log = MemoryLog()
    log.entries = [(1, "a"), (1, "b")]
    core = core_of(log=log)
    core.start(0)
    effects = core.step(0, VoteRequest(2, 4, 1, 1, pre_vote=False))
    assert isinstance(effects.messages[0][1], VoteResponse)
    assert not effects.messages[0][1].granted
    effects = core.step(0, VoteRequest(3, 4, 1, 2, pre_vote=False))
    assert isinstance(effects.messages[0][1], VoteResponse)
    assert effects.messages[0][1].granted


def test_a_pre_vote_changes_no_state() -> None:
    core = core_of()
    core.start(0)
    effects = core.step(0, VoteRequest(2, 0, 0, 0, pre_vote=True))
    assert effects.persist is None
    assert isinstance(effects.messages[0][1], VoteResponse)
    assert effects.messages[0][1].granted


def test_a_follower_that_hears_its_leader_grants_no_pre_vote() -> None:
    core = core_of()
    core.start(0)
    core.step(0, BeginQuorumEpochRequest(3, 1))
    core.step(0, FetchResponse(3, 1, 3, 0, high_watermark=0))
    effects = core.step(0, VoteRequest(2, 1, 5, 5, pre_vote=True))
    assert isinstance(effects.messages[0][1], VoteResponse)
    assert not effects.messages[0][1].granted


def test_a_former_leader_does_not_vote_again_in_its_epoch() -> None:
    core = core_of(remembered=ElectionState(5, 1))
    core.start(0)
    effects = core.step(0, VoteRequest(2, 5, 9, 9, pre_vote=False))
    assert isinstance(effects.messages[-1][1], VoteResponse)
    assert not effects.messages[-1][1].granted


def test_a_fetch_of_an_older_epoch_is_fenced() -> None:
    core = core_of(voters=(1,))
    core.start(0)
    effects = core.step(0, FetchRequest(2, 0, 0, 0))
    answer = effects.messages[0][1]
    assert isinstance(answer, FetchResponse)
    assert answer.refusal is Refusal.FENCED_LEADER_EPOCH


def test_a_fetch_beyond_what_the_leader_has_of_an_epoch_is_shown_where_they_part() -> None:
    log = MemoryLog()
    log.entries = [(1, "a"), (1, "b"), (3, "c")]
    core = core_of(voters=(1,), log=log, remembered=ElectionState(3))
    core.start(0)
    effects = core.step(0, FetchRequest(9, 4, 5, 2))
    answer = effects.messages[0][1]
    assert isinstance(answer, FetchResponse)
    assert answer.diverging is not None
    assert (answer.diverging.epoch, answer.diverging.end_offset) == (1, 2)


@pytest.mark.parametrize("voters", [3, 5])
def test_a_leader_is_elected_and_commits(voters: int) -> None:
    world = QuorumWorld(voters, seed=1)
    assert world.run_until(lambda: world.leader() is not None)
    leader = world.leader()
    assert leader is not None
    offset = world.propose(leader)
    assert world.run_until(lambda: len(world.committed) > offset)


def test_all_followers_learn_what_is_committed() -> None:
    world = QuorumWorld(3, seed=2, observers=1)
    world.run_until(lambda: world.leader() is not None)
    leader = world.leader()
    assert leader is not None
    offset = world.propose(leader)
    voters = [node for node in world.nodes if node.id in world.voters]
    assert world.run_until(lambda: all(n.core.high_watermark > offset for n in voters if n.core))


def test_a_dead_leader_is_replaced_and_cuts_its_log_when_it_returns() -> None:
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


def test_a_leader_cut_off_from_the_majority_steps_down() -> None:
    world = QuorumWorld(3, seed=4)
    world.run_until(lambda: world.leader() is not None)
    old = world.leader()
    assert old is not None
    world.run_for(1000)
    world.isolate(old.id)
    assert world.run_until(lambda: old.core is not None and not old.core.is_leader, 10_000)


def test_a_leader_that_resigns_is_followed_by_its_first_successor() -> None:
    world = QuorumWorld(3, seed=5)
    world.run_until(lambda: len(world.committed) > 0)
    old = world.leader()
    assert old is not None
    world.resign(old)
    before = world.now
    assert world.run_until(lambda: world.leader() not in (None, old))
    assert world.now - before < 1000


def test_a_partitioned_voter_does_not_disturb_the_others_when_it_returns() -> None:
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


def storm(world: QuorumWorld, rounds: int) -> None:
    """Crashes, restarts, partitions and loss, with appends in between; then peace."""
    world.loss = 0.05
    for _ in range(rounds):
        world.run_for(world.rng.randint(50, 1500))
        leader = world.leader()
        if leader is not None:
            for _ in range(world.rng.randint(1, 4)):
                world.propose(leader)
        node = world.nodes[world.rng.randint(0, len(world.nodes) - 1)]
        match world.rng.randint(0, 7):
            case 0 | 1:
                if node.core is not None:
                    world.crash(node.id)
            case 2:
                world.isolate(node.id)
            case 3:
                world.cut.clear()
            case 4 if leader is not None:
                world.resign(leader)
            case _:
                for each in world.nodes:
                    if each.core is None:
                        world.start(each.id)
    world.heal()
    for each in world.nodes:
        if each.core is None:
            world.start(each.id)


def settled(world: QuorumWorld) -> bool:
    """Whether a value proposed after the storm is committed everywhere."""
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
def test_three_voters_lose_nothing_in_a_storm(seed: int) -> None:
    world = QuorumWorld(3, seed)
    storm(world, rounds=25)
    assert settled(world)


@pytest.mark.parametrize("seed", SEEDS_5)
def test_five_voters_lose_nothing_in_a_storm(seed: int) -> None:
    world = QuorumWorld(5, seed + 10_000)
    storm(world, rounds=25)
    assert settled(world)


def test_records_of_an_older_epoch_are_not_committed_by_counting_them() -> None:
    log = MemoryLog()
    log.entries = [(1, "old")]
    core = core_of(log=log, remembered=ElectionState(1))
    core.start(0)
    core.tick(10_000)
    for voter in (2, 3):
        core.step(10_000, VoteResponse(voter, 1, NO_LEADER, True, True, 1))
    core.step(10_000, VoteResponse(2, 2, NO_LEADER, True, False, 2))
    assert core.is_leader
    log.entries.append((2, "leader"))
    core.on_appended(10_000)
    core.on_synced(10_000, 2)
    core.step(10_001, FetchRequest(2, 2, 1, 1))
    assert core.high_watermark == -1
    core.step(10_002, FetchRequest(2, 2, 2, 2))
    assert core.high_watermark == 2
