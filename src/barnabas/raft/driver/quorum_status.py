"""The quorum state of one replica, for DescribeQuorum (KIP-595, KIP-836, KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.raft.core.roles import NEVER, Leader, ReplicaState

if TYPE_CHECKING:
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.core.raft_core import RaftCore
    from barnabas.raft.replica_key import Address, ReplicaKey


class ReplicaStatus(msgspec.Struct, frozen=True):
    """The state of one replica."""

    key: ReplicaKey
    # The replica's log end offset; -1 while unknown.
    log_end_offset: int
    # Monotonic ms; None for the leader itself and for a replica that never fetched.
    last_fetch_ms: float | None
    # Last time when the replica had all records of the leader, monotonic ms; None as above.
    last_caught_up_ms: float | None
    # A voter's addresses by listener name; empty for observers.
    endpoints: tuple[tuple[str, Address], ...] = ()

    @property
    def id(self) -> int:
        """Node id of the replica."""
        return self.key.id


class QuorumStatus(msgspec.Struct, frozen=True):
    """The state of the quorum. Only the leader knows the offsets of voters and observers."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...]


def quorum_status(core: RaftCore, config: RaftConfig, log_end_offset: int) -> QuorumStatus:
    """Return the current state of the quorum as `core` knows it."""
    leader_id, epoch = core.leader_and_epoch
    role = core.role
    known: dict[int, ReplicaState] = dict(role.voters) if isinstance(role, Leader) else {}
    voters = []
    for voter in core.voters:
        if voter.key.id == config.node_id and core.is_voter:
            voters.append(ReplicaStatus(voter.key, log_end_offset, None, None, voter.endpoints))
        else:
            state = known.get(voter.key.id) or ReplicaState(voter.key)
            voters.append(_status(voter.key, state, voter.endpoints))
    observers = dict(role.observers) if isinstance(role, Leader) else {}
    described = [_status(key, observers[key]) for key in sorted(observers)]
    if isinstance(role, Leader) and not core.is_voter:
        # The leader itself is being removed from the voters.
        described.append(ReplicaStatus(config.key, log_end_offset, None, None))
    return QuorumStatus(leader_id, epoch, core.high_watermark, tuple(voters), tuple(described))


def _status(
    key: ReplicaKey, state: ReplicaState, endpoints: tuple[tuple[str, Address], ...] = ()
) -> ReplicaStatus:
    if state.end_offset is None:
        return ReplicaStatus(key, -1, None, None, endpoints)
    return ReplicaStatus(
        key,
        state.end_offset,
        _known(state.last_fetch_ms),
        _known(state.last_caught_up_ms),
        endpoints,
    )


def _known(at_ms: float) -> float | None:
    return at_ms if at_ms > -NEVER else None
