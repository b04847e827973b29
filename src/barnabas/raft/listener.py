"""What the driver tells those who follow the metadata log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.protocol.schema import Record

NO_LEADER = -1


class LeaderAndEpoch(NamedTuple):
    """Who leads the quorum; NO_LEADER while nobody is known to."""

    leader_id: int
    epoch: int


class SnapshotId(NamedTuple):
    """Names a snapshot: it holds all records below `end_offset`."""

    end_offset: int
    epoch: int


class CommittedBatch(msgspec.Struct, frozen=True):
    """One batch of metadata records below the high watermark."""

    base_offset: int
    # Inclusive.
    last_offset: int
    epoch: int
    # Append time of the batch, ms.
    timestamp: int
    # Bytes in the log.
    size: int
    # Each record with the version it was written in; empty for a control batch.
    records: Sequence[tuple[Record, int]]


class LoadedSnapshot(msgspec.Struct, frozen=True):
    """A snapshot that takes the place of the log below it."""

    id: SnapshotId
    # Append time of the last record of the log that it contains, ms.
    timestamp: int
    records: Iterable[tuple[Record, int]]


class RaftListener(Protocol):
    """Called on the loop, in log order."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Batches were committed; they follow the last ones without a gap."""
        ...

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Forget everything and load this."""
        ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """The quorum has a new leader, or none.

        The own leadership is told only after everything of earlier epochs has gone through
        `on_commit`.
        """
        ...
