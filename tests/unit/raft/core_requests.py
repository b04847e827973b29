"""Raft cores and the requests that reach them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.raft.config import RaftConfig
from barnabas.raft.core.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    Response,
    VoteRequest,
    VoteResponse,
)
from barnabas.raft.core.raft_core import RaftCore
from barnabas.raft.election_state import ElectionState
from barnabas.raft.voter_set import ReplicaKey, VoterHistory, VoterSet
from barnabas.runtime.rng import SeededRng
from unit.raft.quorum_world import MemoryLog, QuorumWorld

if TYPE_CHECKING:
    from barnabas.raft.core.messages import Effects


def core_of(
    node_id: int = 1,
    voters: tuple[int, ...] = (1, 2, 3),
    log: MemoryLog | None = None,
    stored_state: ElectionState | None = None,
) -> RaftCore:
    return RaftCore(
        RaftConfig(node_id, voters),
        log or MemoryLog(),
        SeededRng(1),
        stored_state or ElectionState(),
        VoterHistory(
            VoterSet.static(voters, {each: ("host", each) for each in voters}, "CONTROLLER")
        ),
    )


def vote_of(
    source: int, epoch: int, last_epoch: int, end_offset: int, *, pre_vote: bool = False
) -> VoteRequest:
    return VoteRequest(ReplicaKey(source), epoch, last_epoch, end_offset, pre_vote)


def fetch_of(source: int, epoch: int, offset: int, last_epoch: int) -> FetchRequest:
    return FetchRequest(ReplicaKey(source), epoch, offset, last_epoch, -1, 500)


def response_to(effects: Effects) -> Response:
    ((_, response),) = effects.responses
    return response


def granted(effects: Effects) -> bool:
    response = response_to(effects)
    assert isinstance(response, VoteResponse)
    return response.granted


def token_of(effects: Effects, destination: int) -> int:
    (request,) = [request for each, request in effects.requests if each == destination]
    return request.token


def make_follower(core: RaftCore, leader: int = 3, epoch: int = 1) -> int:
    """Make the core follow a leader that responded to a fetch; return the next fetch's token."""
    effects = core.step(0, BeginQuorumEpochRequest(leader, epoch))
    token = token_of(effects, leader)
    response = FetchResponse(high_watermark=0, token=token, epoch=epoch, leader_id=leader)
    return token_of(core.step(0, response), leader)


def run_failures(world: QuorumWorld, rounds: int) -> None:
    """Cause crashes, restarts, partitions and message loss between appends, and end them all."""
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
