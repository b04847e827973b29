"""The core's conditions for a change of the voters (KIP-853)."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.config import RaftConfig
from barnabas.raft.core.messages import (
    AddVoterRequest,
    Effects,
    FetchRequest,
    RemoveVoterRequest,
    Request,
    SupportedVersionsRequest,
    SupportedVersionsResponse,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteResponse,
)
from barnabas.raft.core.raft_core import RaftCore
from barnabas.raft.election_state import ElectionState
from barnabas.raft.listener import SnapshotId
from barnabas.raft.voter_set import Address, ReplicaKey, Voter, VoterHistory, VoterSet
from barnabas.runtime.rng import SeededRng
from unit.raft.quorum_world import MemoryLog

HOUR_MS = 3_600_000


def voter(node_id: int, port: int = 9093) -> Voter:
    at = Address(f"host-{node_id}", port)
    return Voter(ReplicaKey(node_id, bytes([node_id] * 16)), (("CONTROLLER", at),))


class SnapshotLog(MemoryLog):
    """A log whose first record is committed, because it is in a snapshot."""

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return SnapshotId(1, 1)


class NewLeader:
    """Node 1 of the voters 1, 2 and 3, just elected and without committed records of its epoch."""

    def __init__(self) -> None:
        self.log = SnapshotLog()
        self.log.entries = [(1, "voters")]
        history = VoterHistory(VoterSet([]))
        history.add_kraft_version(0, 1)
        history.add_voters(0, VoterSet(voter(each) for each in (1, 2, 3)))
        config = RaftConfig(
            1, (), directory_id=voter(1).key.directory_id, advertised={"CONTROLLER": ("h", 1)}
        )
        self.core = RaftCore(config, self.log, SeededRng(1), ElectionState(1), history)
        self.now_ms = 10_000.0
        self.core.start(0)
        effects = self.core.tick(self.now_ms)
        for epoch in (1, 2):
            ((_, request), *_) = effects.requests
            response = VoteResponse(granted=True, token=request.token, epoch=epoch)
            effects = self.core.step(self.now_ms, response)
        assert self.core.is_leader
        self.log.entries.append((2, "leader"))
        self.core.on_appended(self.now_ms)
        self.core.on_synced(self.now_ms, 2)

    def fetch(self, node_id: int) -> None:
        """Send a fetch of a replica that has all records."""
        source, offset = voter(node_id).key, self.log.end_offset
        epoch = self.log.last_epoch
        self.core.step(self.now_ms, FetchRequest(source, 2, offset, epoch))

    def commit(self) -> None:
        self.fetch(2)
        assert self.core.high_watermark == self.log.end_offset

    def send(self, request: Request) -> Effects:
        return self.core.step(self.now_ms, request)

    def add(self, node_id: int) -> Effects:
        """Request a new voter that supports the required features."""
        effects = self.send(AddVoterRequest(voter(node_id)))
        ((destination, request),) = effects.requests
        assert (destination, type(request)) == (node_id, SupportedVersionsRequest)
        return self.send(SupportedVersionsResponse(token=request.token, max_version=1))


def error_of(effects: Effects) -> ErrorCode:
    ((_, response),) = effects.responses
    assert isinstance(response, VoterChangeResponse)
    return response.error


CHANGES = [
    AddVoterRequest(voter(4)),
    RemoveVoterRequest(voter(3).key),
    UpdateVoterRequest(voter(3, port=9999), 2),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: type(each).__name__)
def test_no_change_begins_before_the_leader_has_committed_in_its_epoch(change: Request) -> None:
    leader = NewLeader()
    effects = leader.send(change)
    assert error_of(effects) is ErrorCode.REQUEST_TIMED_OUT
    assert (effects.control_records, effects.requests) == (None, [])


@pytest.mark.parametrize("change", CHANGES[1:], ids=lambda each: type(each).__name__)
def test_a_change_begins_after_the_leader_has_committed_in_its_epoch(change: Request) -> None:
    leader = NewLeader()
    leader.commit()
    effects = leader.send(change)
    assert effects.control_records is not None
    assert effects.control_records.voters is not None


def test_a_replica_that_never_fetched_is_not_added() -> None:
    leader = NewLeader()
    leader.commit()
    effects = leader.add(4)
    assert error_of(effects) is ErrorCode.REQUEST_TIMED_OUT
    assert effects.control_records is None


def test_a_replica_that_has_been_behind_for_an_hour_is_not_added() -> None:
    leader = NewLeader()
    leader.commit()
    leader.fetch(4)
    behind = FetchRequest(voter(4).key, 2, leader.log.end_offset, 2)
    end_ms = leader.now_ms + HOUR_MS + 2_000
    while leader.now_ms < end_ms:
        leader.now_ms += 1_000
        leader.log.entries.append((2, "more"))
        leader.core.on_appended(leader.now_ms)
        leader.core.on_synced(leader.now_ms, leader.log.end_offset)
        leader.commit()
        leader.send(behind)
    effects = leader.add(4)
    assert error_of(effects) is ErrorCode.REQUEST_TIMED_OUT
    assert effects.control_records is None


def test_a_replica_that_has_caught_up_is_added() -> None:
    leader = NewLeader()
    leader.commit()
    leader.fetch(4)
    effects = leader.add(4)
    assert effects.responses == []
    assert effects.control_records is not None
    assert effects.control_records.voters is not None
    assert effects.control_records.voters.ids == (1, 2, 3, 4)
