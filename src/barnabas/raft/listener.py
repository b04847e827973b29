"""Callbacks through which the driver informs listeners about the metadata log, and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.protocol.schema import Record


class RaftError(Exception):
    """Base class of the errors that the driver reports."""


class NotLeaderError(RaftError):
    """This replica does not lead, or lost its leadership before the records were committed."""


class MetadataBatchTooLargeError(RaftError):
    """The records of one append do not fit into one batch."""


class SnapshotError(RaftError):
    """A snapshot file is damaged or incomplete."""


NO_LEADER = -1


class LeaderAndEpoch(NamedTuple):
    """The leader of the quorum and its epoch; NO_LEADER while the leader is unknown."""

    leader_id: int
    epoch: int


class SnapshotId(NamedTuple):
    """Identifies a snapshot, which contains all records below `end_offset`."""

    end_offset: int
    epoch: int


class CommittedBatch(msgspec.Struct, frozen=True):
    """One batch of records below the high watermark."""

    base_offset: int
    # Offset of the last record, inclusive.
    last_offset: int
    epoch: int
    # Append time of the batch, ms.
    timestamp: int
    # Size in the log, bytes.
    size: int
    # Each record with the version it was written in; empty for a control batch.
    records: Sequence[tuple[Record, int]]


class LoadedSnapshot(msgspec.Struct, frozen=True):
    """A snapshot that replaces the log below its end offset."""

    id: SnapshotId
    # Append time of the last contained record, ms.
    timestamp: int
    records: Iterable[tuple[Record, int]]


class RaftListener(Protocol):
    """Receives committed records. All methods are called on the event loop, in log order."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Handle committed batches, which follow the previous ones without a gap."""
        ...

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Discard the current state and load the snapshot."""
        ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Handle a change of the leader; NO_LEADER if the leader is unknown.

        This replica's own leadership is reported only after `on_commit` has received all records of
        earlier epochs.
        """
        ...
