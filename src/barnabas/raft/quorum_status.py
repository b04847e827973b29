"""The quorum as one replica sees it, for DescribeQuorum (KIP-595, KIP-836)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.raft.roles import NEVER, Leader

if TYPE_CHECKING:
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.core import RaftCore
    from barnabas.raft.roles import ReplicaState


class ReplicaStatus(msgspec.Struct, frozen=True):
    """One replica."""

    id: int
    # -1 while unknown.
    log_end_offset: int
    # Monotonic clock, ms; None for the leader itself and for who never fetched.
    last_fetch_ms: float | None


class QuorumStatus(msgspec.Struct, frozen=True):
    """Only the leader knows voters' and observers' offsets."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...]


def quorum_status(core: RaftCore, config: RaftConfig, log_end_offset: int) -> QuorumStatus:
    """What `core` knows now."""
    leader_id, epoch = core.leader_and_epoch
    role = core.role
    known: dict[int, ReplicaState] = dict(role.voters) if isinstance(role, Leader) else {}
    voters = []
    for voter in sorted(config.voters):
        if voter == config.node_id:
            voters.append(ReplicaStatus(voter, log_end_offset, None))
        else:
            voters.append(_status(voter, known.get(voter)))
    observers = role.observers if isinstance(role, Leader) else {}
    return QuorumStatus(
        leader_id,
        epoch,
        core.high_watermark,
        tuple(voters),
        tuple(_status(each, observers[each]) for each in sorted(observers)),
    )


def _status(replica_id: int, state: ReplicaState | None) -> ReplicaStatus:
    if state is None or state.end_offset is None:
        return ReplicaStatus(replica_id, -1, None)
    last_fetch = state.last_fetch_ms
    return ReplicaStatus(replica_id, state.end_offset, last_fetch if last_fetch > -NEVER else None)
