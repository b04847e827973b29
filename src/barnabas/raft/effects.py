"""What the core wants done after a step, as one batch (the shape is etcd-raft's Ready)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from barnabas.raft.election_state import ElectionState
    from barnabas.raft.listener import LeaderAndEpoch, SnapshotId
    from barnabas.raft.messages import Request, Response
    from barnabas.raft.voter_set import VoterSet


class ControlRecords(msgspec.Struct, frozen=True):
    """Control records that a leader appends as one batch; those that are None are left out."""

    epoch: int
    leader_change: LeaderChange | None = None
    kraft_version: int | None = None
    voters: VoterSet | None = None

    def __len__(self) -> int:
        """How many records, and so offsets, it takes."""
        parts = (self.leader_change, self.kraft_version, self.voters)
        return sum(part is not None for part in parts)


class LeaderChange(msgspec.Struct, frozen=True):
    """The control record that a new leader begins its epoch with."""

    leader_id: int
    voters: VoterSet
    granting_voters: tuple[int, ...]


class SnapshotSlice(NamedTuple):
    """A part of the leader's snapshot, to be written behind the parts before it."""

    id: SnapshotId
    position: int
    # Opaque here.
    content: object
    is_last: bool


class Effects(msgspec.Struct):
    """To be carried out in the order of the fields, all before the next step."""

    # This replica has its vote from now on: on disk before anything else happens.
    has_vote: bool = False
    # On disk before anything else happens.
    persist: ElectionState | None = None
    # Drop all of the log from this offset on.
    truncate_to: int | None = None
    # Batches of the leader, to be appended as they are and synced; then `on_synced`.
    append: object = None
    # Of a snapshot; after the last `on_snapshot_installed`.
    snapshot_slice: SnapshotSlice | None = None
    # Moved to here; never back.
    high_watermark: int | None = None
    # Another leader than before, or none.
    leadership: LeaderAndEpoch | None = None
    # (request, response): to who asked.
    answers: list[tuple[Request, Response]] = msgspec.field(default_factory=list)
    # (destination, request): voters by node id, bootstrap servers by negative numbers.
    requests: list[tuple[int, Request]] = msgspec.field(default_factory=list)
    # To be appended at the log end and synced; then `on_appended` and `on_synced`.
    control_records: ControlRecords | None = None
