"""Offsets that delimit a log, and their transitions.

Each transition checks the invariant OffsetsInOrder; `LogAppender` checks NoOffsetTwice. The high
watermark may go back here: `HighWatermarkMonotonic` holds on a leader, which checks it first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.storage.producers.open_transactions import OpenTransactions
    from barnabas.storage.topic_partition import TopicPartition


class LogOffsets:
    """Start, end, high watermark, last stable offset and recovery point of one log."""

    __slots__ = (
        "_topic_partition",
        "_transactions",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        transactions: OpenTransactions,
        span: range,
        high_watermark: int,
        recovery_point: int,
    ) -> None:
        """Create the offsets of a log that was opened.

        Args:
            topic_partition: named by failing assertions.
            transactions: the transactions of the log, for the last stable offset.
            span: log start offset and log end offset.
            high_watermark: the checkpointed one; it is moved into `span`, because records above the
                log end may have been lost, and records below the log start deleted, since then.
            recovery_point: where the next recovery starts.
        """
        self._topic_partition = topic_partition
        self._transactions = transactions
        # First readable offset. Deletions and retention raise it; only truncations lower it.
        self.log_start_offset = span.start
        # Offset of the next record (exclusive end of the log). Appends raise it, truncations lower
        # it.
        self.log_end_offset = span.stop
        # Everything below it is synced, and recovery starts there. Syncs raise it, truncations
        # lower it. Invariant: <= log_end_offset.
        self.recovery_point = recovery_point
        # Exclusive end of the records that every in-sync replica has. The replica layer moves it.
        # Invariant: log_start_offset <= high_watermark <= log_end_offset.
        self.high_watermark = min(max(high_watermark, span.start), span.stop)
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
        """Set the high watermark within [log start, log end]; return whether it moved.

        Like Kafka, the method moves `offset` into that range. The leader's high watermark is above
        a follower's log end while the follower catches up. It is below a follower's log start after
        the follower was the first to delete a segment.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            offset = min(max(offset, self.log_start_offset), self.log_end_offset)
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
        self._check_order()

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
        self.recovery_point = min(self.recovery_point, log_end_offset)
        self.high_watermark = min(self.high_watermark, log_end_offset)
        self._check_order()

    def start_at(self, offset: int) -> None:
        """Set all offsets of a log whose records were all removed."""
        self.log_start_offset = self.log_end_offset = offset
        self.high_watermark = self.recovery_point = offset
        self._check_order()

    def on_synced(self, end_offset: int) -> None:
        """Raise the recovery point after a sync of the records below `end_offset`.

        The recovery point stays at or below the log end offset, which a truncation during the sync
        may have lowered.
        """
        self.recovery_point = max(self.recovery_point, min(end_offset, self.log_end_offset))
        self._check_order()

    def _check_order(self) -> None:
        start, end = self.log_start_offset, self.log_end_offset
        stable, high_watermark = self.last_stable_offset, self.high_watermark
        is_ordered = start <= stable <= high_watermark <= end and self.recovery_point <= end
        assert is_ordered, (
            f"OffsetsInOrder: log_start_offset={start} last_stable_offset={stable} "
            f"high_watermark={high_watermark} log_end_offset={end} "
            f"recovery_point={self.recovery_point} {self._topic_partition}"
        )
