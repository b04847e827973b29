"""Offsets that delimit a log and its local part, and their transitions.

Each transition checks the invariant OffsetsInOrder; `LogAppender` checks NoOffsetTwice. The high
watermark may go back here: `HighWatermarkMonotonic` holds on a leader, which checks it first.

With a remote tier (KIP-405), only the tier has the records between log start and local log start.
Without one, both offsets are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.storage.producers.open_transactions import OpenTransactions
    from barnabas.storage.topic_partition import TopicPartition


class LogOffsets:
    """Starts, end, high watermark, last stable offset and recovery point of one log."""

    __slots__ = (
        "_topic_partition",
        "_transactions",
        "high_watermark",
        "highest_remote_offset",
        "local_log_start_offset",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
        "verified_remote_offset",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        transactions: OpenTransactions,
        span: range,
        high_watermark: int,
        recovery_point: int,
        local_log_start_offset: int | None = None,
    ) -> None:
        """Create the offsets of a log that was opened.

        Args:
            topic_partition: named by failing assertions.
            transactions: the transactions of the log, for the last stable offset.
            span: log start offset and log end offset.
            high_watermark: the checkpointed one; it is moved into `span`, because records above the
                log end may have been lost, and records below the log start deleted, since then.
            recovery_point: where the next recovery starts.
            local_log_start_offset: where the local records start; None for the log start offset.
        """
        self._topic_partition = topic_partition
        self._transactions = transactions
        # First readable offset. Deletions and retention raise it; only truncations lower it.
        self.log_start_offset = span.start
        local = span.start if local_log_start_offset is None else local_log_start_offset
        # First offset that is readable from local segments. Local retention raises it, and so do
        # deletions above it; only truncations lower it.
        # Invariant: log_start_offset <= local_log_start_offset <= high_watermark.
        self.local_log_start_offset = local
        # Last offset that the remote tier is known to have, inclusive; -1 after an opening. The
        # replica layer raises it; truncations and a removal of the tier lower it.
        self.highest_remote_offset = -1
        # The same for copies that were found in the store again, because a store may lose them.
        self.verified_remote_offset = -1
        # Offset of the next record (exclusive end of the log). Appends raise it, truncations lower
        # it.
        self.log_end_offset = span.stop
        # Everything below it is synced, and recovery starts there. Syncs raise it, truncations
        # lower it. Invariant: <= log_end_offset.
        self.recovery_point = recovery_point
        # Exclusive end of the records that every in-sync replica has. The replica layer moves it.
        # Invariant: local_log_start_offset <= high_watermark <= log_end_offset.
        self.high_watermark = min(max(high_watermark, local), span.stop)
        transactions.on_high_watermark_updated(self.high_watermark)
        self._check_order()

    @property
    def last_stable_offset(self) -> int:
        """First offset of an undecided transaction; at most the high watermark.

        A transaction that began below the log start counts from the log start, as in Kafka: its
        deleted records are not readable anyway.
        """
        transactions = self._transactions
        if transactions.ongoing or transactions.unreplicated:
            first = transactions.first_unstable_offset()
            if first is not None and first < self.high_watermark:
                return max(first, self.log_start_offset)
        return self.high_watermark

    def update_high_watermark(self, offset: int) -> bool:
        """Set the high watermark within [local log start, log end]; return whether it moved.

        Like Kafka, the method moves `offset` into that range. The leader's high watermark is above
        a follower's log end while the follower catches up. It is below a follower's local log start
        after the follower was the first to delete a segment.
        """
        if not self.local_log_start_offset <= offset <= self.log_end_offset:
            offset = min(max(offset, self.local_log_start_offset), self.log_end_offset)
        if offset == self.high_watermark:
            return False
        # Nothing else moves, so the range above is the whole of OffsetsInOrder.
        self.high_watermark = offset
        if self._transactions.unreplicated:
            self._transactions.on_high_watermark_updated(offset)
        return True

    def raise_log_start_offset(self, offset: int) -> None:
        """Raise the log start offset, at most to the high watermark."""
        assert offset > self.log_start_offset, (
            f"log start offset {offset} is not above {self.log_start_offset} "
            f"{self._topic_partition}"
        )
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        self._check_order()

    def raise_local_log_start_offset(self, offset: int) -> None:
        """Raise the local log start offset; the records below it stay readable from the tier."""
        assert self.local_log_start_offset < offset <= self.copied_end_offset, (
            f"local log start offset {offset} is not above {self.local_log_start_offset}, or above "
            f"the copies, which end at {self.copied_end_offset} {self._topic_partition}"
        )
        self.local_log_start_offset = offset
        self._check_order()

    @property
    def copied_end_offset(self) -> int:
        """Exclusive end of the records whose copies in the remote tier were verified."""
        return min(self.highest_remote_offset, self.verified_remote_offset) + 1

    def raise_highest_remote_offset(self, offset: int) -> bool:
        """Record that the tier has the records up to `offset`; return whether that is new."""
        is_new = offset > self.highest_remote_offset
        if is_new:
            self.highest_remote_offset = offset
        return is_new

    def raise_verified_remote_offset(self, offset: int) -> bool:
        """Record that the copies up to `offset` were verified; return whether that is new."""
        is_new = offset > self.verified_remote_offset
        if is_new:
            self.verified_remote_offset = offset
        return is_new

    def lower_recovery_point(self, offset: int) -> None:
        """Include the records from `offset` on in the next sync and in the next recovery."""
        self.recovery_point = min(self.recovery_point, offset)

    def on_truncated(self, log_end_offset: int) -> None:
        """Lower the log end offset; the other offsets follow it where they are above.

        The high watermark is above only after an unclean election, which may lose committed
        records. Kafka lowers it in that case too.
        """
        assert log_end_offset < self.log_end_offset, (
            f"truncation to {log_end_offset}, log_end_offset={self.log_end_offset} "
            f"{self._topic_partition}"
        )
        self.log_end_offset = log_end_offset
        self.log_start_offset = min(self.log_start_offset, log_end_offset)
        self.local_log_start_offset = min(self.local_log_start_offset, log_end_offset)
        self._forget_copies_from(log_end_offset)
        self.recovery_point = min(self.recovery_point, log_end_offset)
        self.high_watermark = min(self.high_watermark, log_end_offset)
        self._check_order()

    def start_at(self, offset: int, log_start_offset: int) -> None:
        """Set all offsets of a log whose local records were all removed.

        Args:
            log_start_offset: below `offset` if the remote tier has the records in between.
        """
        self.log_start_offset = log_start_offset
        self.local_log_start_offset = self.log_end_offset = offset
        self._forget_copies_from(offset)
        self.high_watermark = self.recovery_point = offset
        self._check_order()

    def forget_copies(self) -> None:
        """Forget all copies: the remote tier of the log is removed."""
        self._forget_copies_from(0)

    def _forget_copies_from(self, offset: int) -> None:
        """Forget copies of removed records, whose offsets the log may use again."""
        self.highest_remote_offset = min(self.highest_remote_offset, offset - 1)
        self.verified_remote_offset = min(self.verified_remote_offset, offset - 1)

    def on_synced(self, end_offset: int) -> None:
        """Raise the recovery point after a sync of the records below `end_offset`.

        The recovery point stays at or below the log end offset, which a truncation during the sync
        may have lowered.
        """
        self.recovery_point = max(self.recovery_point, min(end_offset, self.log_end_offset))
        self._check_order()

    def _check_order(self) -> None:
        start, local, end = self.log_start_offset, self.local_log_start_offset, self.log_end_offset
        stable, high_watermark = self.last_stable_offset, self.high_watermark
        is_ordered = (
            start <= local <= high_watermark
            and start <= stable <= high_watermark <= end
            and self.recovery_point <= end
        )
        assert is_ordered, (
            f"OffsetsInOrder: log_start_offset={start} local_log_start_offset={local} "
            f"last_stable_offset={stable} "
            f"high_watermark={high_watermark} log_end_offset={end} "
            f"recovery_point={self.recovery_point} {self._topic_partition}"
        )
