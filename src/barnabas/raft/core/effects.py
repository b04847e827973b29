"""The actions that the core requests after a step, as one batch (like Ready in etcd's raft)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from barnabas.raft.core.messages import Request, Response
    from barnabas.raft.election_state import ElectionState
    from barnabas.raft.listener import LeaderAndEpoch, SnapshotId
    from barnabas.raft.voter_set import VoterSet


class ControlRecords(msgspec.Struct, frozen=True):
    """Control records that a leader appends as one batch. Fields that are None are left out."""

    epoch: int
    leader_change: LeaderChange | None = None
    kraft_version: int | None = None
    voters: VoterSet | None = None

    def __len__(self) -> int:
        """Return the number of records, which is also the number of offsets."""
        parts = (self.leader_change, self.kraft_version, self.voters)
        return sum(part is not None for part in parts)


class LeaderChange(msgspec.Struct, frozen=True):
    """The control record that starts the epoch of a new leader."""

    leader_id: int
    voters: VoterSet
    granting_voters: tuple[int, ...]


class SnapshotSlice(NamedTuple):
    """A part of the leader's snapshot, to be appended to the previous parts."""

    id: SnapshotId
    position: int
    # Bytes-like; the core does not read them.
    content: object
    is_last: bool


class Effects(msgspec.Struct):
    """Actions to carry out in the order of the fields, all of them before the next step."""

    # This replica may vote from now on. Must be on disk before any later action.
    has_vote: bool = False
    # Election state that must be on disk before any later action; None if unchanged.
    persist: ElectionState | None = None
    # Truncate the log to this offset; None for no truncation.
    truncate_to: int | None = None
    # Batches from the leader, to be appended unchanged and synced. Then the driver calls
    # `on_synced`.
    append: object = None
    # Part of a snapshot to write. After the last part the driver calls `on_snapshot_installed`.
    snapshot_slice: SnapshotSlice | None = None
    # The new high watermark; None if unchanged. It never decreases.
    high_watermark: int | None = None
    # The new leader and epoch, or NO_LEADER; None if unchanged.
    leadership: LeaderAndEpoch | None = None
    # (request, response): responses to send to the senders of the requests.
    responses: list[tuple[Request, Response]] = msgspec.field(default_factory=list)
    # (destination, request): voters by node id, bootstrap servers by negative numbers.
    requests: list[tuple[int, Request]] = msgspec.field(default_factory=list)
    # Records to append at the log end and sync. Then the driver calls `on_appended` and
    # `on_synced`.
    control_records: ControlRecords | None = None
