"""The log of a tutorial node: records in memory, a synced part, and a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.raft.listener import SnapshotId

if TYPE_CHECKING:
    from barnabas.raft.voter_set import VoterSet


class Entry(NamedTuple):
    epoch: int
    text: str
    # Set if the record changes the voters.
    voters: VoterSet | None = None

    def __str__(self) -> str:
        return f"{self.epoch}:{self.text}"


class TutorialLog:
    """Records from `start_offset` on. A crash loses records that are not synced."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.synced = 0
        self.snapshot: SnapshotId | None = None

    @property
    def start_offset(self) -> int:
        return 0 if self.snapshot is None else self.snapshot.end_offset

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    @property
    def last_epoch(self) -> int:
        if self.entries:
            return self.entries[-1].epoch
        return 0 if self.snapshot is None else self.snapshot.epoch

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return self.snapshot

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshot

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        for index in range(len(self.entries) - 1, -1, -1):
            if self.entries[index].epoch <= epoch:
                return self.entries[index].epoch, self.start_offset + index + 1
        if self.snapshot is not None and self.snapshot.epoch <= epoch:
            return self.snapshot.epoch, self.snapshot.end_offset
        return -1, -1

    def read(self, offset: int) -> list[Entry]:
        return self.entries[offset - self.start_offset :]

    def truncate_to(self, offset: int) -> None:
        del self.entries[offset - self.start_offset :]
        self.synced = min(self.synced, offset)

    def take_snapshot(self, end_offset: int) -> SnapshotId:
        """Replace the records below `end_offset` with a snapshot."""
        kept = self.read(end_offset)
        epoch = self.entries[end_offset - self.start_offset - 1].epoch
        self.snapshot, self.entries = SnapshotId(end_offset, epoch), kept
        return self.snapshot

    def install(self, snapshot: SnapshotId) -> None:
        self.snapshot, self.entries, self.synced = snapshot, [], snapshot.end_offset

    def __str__(self) -> str:
        shown = " ".join(map(str, self.entries))
        if self.snapshot is None:
            return shown or "empty"
        return f"[snapshot of {self.snapshot.end_offset} records] {shown}".rstrip()
