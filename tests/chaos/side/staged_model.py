"""The offset of one group and partition, as Kafka defines it for transactions and deletions.

A transaction stages an offset in the log of the coordinator. Its commit makes the offset visible,
unless a later commit is in the log. A deletion discards what is committed and what is staged. An
offset expires after its retention, but never while a transaction has staged an offset of the group.
"""

from __future__ import annotations

from dataclasses import dataclass

# OffsetFetch returns this if there is no offset.
NO_OFFSET = -1


@dataclass
class StagedModel:
    """Expected results of one group, whose operations succeed one after the other."""

    committed: int = NO_OFFSET
    # Place of the committed offset in the log, which grows with every operation.
    committed_at: int = -1
    # Offset of the open transaction, and its place in the log; None if nothing is staged.
    staged: tuple[int, int] | None = None
    operations: int = 0
    # Whether the committed offset has a short retention.
    expires: bool = False

    def commit(self, offset: int, expires: bool = False) -> None:
        """Commit an offset without a transaction."""
        self.operations += 1
        self.committed, self.committed_at, self.expires = offset, self.operations, expires

    def stage(self, offset: int) -> None:
        """Stage an offset in the open transaction."""
        self.operations += 1
        self.staged = (offset, self.operations)

    def end(self, is_commit: bool) -> None:
        """End the transaction."""
        staged, self.staged = self.staged, None
        if is_commit and staged is not None and staged[1] > self.committed_at:
            self.committed, self.committed_at = staged
            self.expires = False

    def delete(self) -> None:
        """Delete the offset, or the group."""
        self.operations += 1
        self.committed, self.committed_at, self.staged = NO_OFFSET, -1, None
        self.expires = False

    def let_expire(self) -> None:
        """Let the retention pass."""
        if self.expires and self.staged is None:
            self.delete()
