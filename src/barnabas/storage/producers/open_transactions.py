"""Open and undecided transactions of one log, in the order of their first offsets (KIP-98).

Kafka: `ongoingTxns` and `unreplicatedTxns` of ProducerStateManager. A transaction is undecided
until its marker is below the high watermark. The last stable offset follows from this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.storage.producers.completed_txn import CompletedTxn


class OpenTransactions:
    """First offsets of the undecided transactions."""

    __slots__ = ("_ongoing", "_unreplicated")

    def __init__(self) -> None:
        # Transactions without a marker: first offset -> producer id. Appends add to it; markers
        # remove from it. Ascending by first offset, because appends arrive in that order.
        self._ongoing: dict[int, int] = {}
        # Ended transactions with a marker at or above the high watermark: first offset -> offset of
        # the marker. The high watermark removes them when it passes the marker.
        self._unreplicated: dict[int, int] = {}

    @property
    def is_any_undecided(self) -> bool:
        """Whether the last stable offset can be below the high watermark."""
        return bool(self._ongoing or self._unreplicated)

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Record that the producer has a transaction from `first_offset` on."""
        self._ongoing[first_offset] = producer_id

    def end(self, completed: CompletedTxn) -> None:
        """Record the marker of a transaction."""
        self._ongoing.pop(completed.first_offset, None)
        self._unreplicated[completed.first_offset] = completed.last_offset

    def clear(self) -> None:
        """Remove all transactions, before the log is read again."""
        self._ongoing.clear()
        self._unreplicated.clear()

    def first_unstable_offset(self) -> int | None:
        """Return the lowest first offset of the undecided transactions; None without any."""
        first = min(self._ongoing, default=None)
        replicated = min(self._unreplicated, default=None)
        if first is None or (replicated is not None and replicated < first):
            return replicated
        return first

    @property
    def first_producer_id(self) -> int | None:
        """The producer of the oldest transaction without a marker; None without any."""
        return next(iter(self._ongoing.values()), None)

    def last_stable_offset_after(self, completed: CompletedTxn) -> int:
        """Return the last stable offset once this transaction has ended.

        That is the first offset of the next open transaction, or the offset after the marker.
        """
        others = [first for first in self._ongoing if first != completed.first_offset]
        return min(others, default=completed.last_offset + 1)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Remove ended transactions whose marker is below the high watermark."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            }
