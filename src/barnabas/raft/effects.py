"""What the core wants done after a step, as one batch (the shape is etcd-raft's Ready)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from barnabas.raft.election_state import ElectionState
    from barnabas.raft.listener import LeaderAndEpoch
    from barnabas.raft.messages import Message


class LeaderChange(msgspec.Struct, frozen=True):
    """The control record that a new leader begins its epoch with."""

    leader_id: int
    epoch: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


class Effects(msgspec.Struct):
    """To be carried out in the order of the fields, all before the next step."""

    # On disk before anything else happens.
    persist: ElectionState | None = None
    # Drop all of the log from this offset on.
    truncate_to: int | None = None
    # Batches of the leader, to be appended as they are and synced; then `on_synced`.
    append: object = None
    # To be appended at the log end and synced; then `on_appended` and `on_synced`.
    leader_change: LeaderChange | None = None
    # Moved to here; never back.
    high_watermark: int | None = None
    # Another leader than before, or none.
    leadership: LeaderAndEpoch | None = None
    # (destination, message); last.
    messages: list[tuple[int, Message]] = msgspec.field(default_factory=list)
