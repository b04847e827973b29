"""Transactions of one log: the open and undecided ones, and which may begin.

*Open and undecided transactions* are in the order of their first offsets (KIP-98; Kafka:
`ongoingTxns` and `unreplicatedTxns` of ProducerStateManager). A transaction is undecided until its
marker is below the high watermark. The last stable offset follows from this.

*Verifications* (Kafka's VerificationStateEntry; KIP-890): Before the first batch of a transaction,
the leader verifies with the transaction coordinator that the transaction includes the partition. A
marker that arrives meanwhile ends this verification: the batch of an ended transaction must not
open it again. Clients of version 2 begin each transaction with a new epoch. They send its first
batch before all markers of the former transaction are written. So a marker that began the epoch of
the batch does not end its verification (Kafka's always does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.producers.producer_entry import NO_EPOCH

if TYPE_CHECKING:
    from barnabas.storage.producers.producer_entry import CompletedTxn


class OpenTransactions:
    """First offsets of the undecided transactions."""

    __slots__ = ("ongoing", "unreplicated")

    def __init__(self) -> None:
        # Transactions without a marker: first offset -> producer id. Appends add to it; markers
        # remove from it. Ascending by first offset, because appends arrive in that order.
        self.ongoing: dict[int, int] = {}
        # Ended transactions with a marker at or above the high watermark: first offset -> offset of
        # the marker. The high watermark removes them when it passes the marker.
        self.unreplicated: dict[int, int] = {}

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Record that the producer has a transaction from `first_offset` on."""
        self.ongoing[first_offset] = producer_id

    def end(self, completed: CompletedTxn) -> None:
        """Record the marker of a transaction."""
        self.ongoing.pop(completed.first_offset, None)
        self.unreplicated[completed.first_offset] = completed.last_offset

    def clear(self) -> None:
        """Remove all transactions, before the log is read again."""
        self.ongoing.clear()
        self.unreplicated.clear()

    def first_unstable_offset(self) -> int | None:
        """Return the lowest first offset of the undecided transactions; None without any."""
        first = min(self.ongoing, default=None)
        replicated = min(self.unreplicated, default=None)
        if first is None or (replicated is not None and replicated < first):
            return replicated
        return first

    @property
    def first_producer_id(self) -> int | None:
        """The producer of the oldest transaction without a marker; None without any."""
        return next(iter(self.ongoing.values()), None)

    def last_stable_offset_after(self, completed: CompletedTxn) -> int:
        """Return the last stable offset once this transaction has ended.

        That is the first offset of the next open transaction, or the offset after the marker.
        """
        others = [first for first in self.ongoing if first != completed.first_offset]
        return min(others, default=completed.last_offset + 1)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Remove ended transactions whose marker is below the high watermark."""
        self.unreplicated = {
            first: last for first, last in self.unreplicated.items() if last >= high_watermark
        }


class VerificationGuard:
    """The verification of one producer's next transaction. Compared by identity."""

    __slots__ = ("began_ms", "bumps_epoch", "epoch", "is_verified", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, now_ms: int, *, bumps_epoch: bool) -> None:
        # The producer epoch of the batch.
        self.epoch = epoch
        # The lowest sequence of the batches that wait for the verification: the first to append.
        self.lowest_sequence = sequence
        # Wall clock, ms. Decides when an unfinished verification expires.
        self.began_ms = now_ms
        # Whether the coordinator has confirmed the partition.
        self.is_verified = False
        # Whether the client gets a new epoch with the end of each transaction (KIP-890). Such a
        # client begins with sequence 0 in a log that does not know its producer id.
        self.bumps_epoch = bumps_epoch


class Verifications:
    """Verifications of one log, by producer id and epoch.

    Epochs do not disturb each other: the coordinator confirms the current one, and refuses those of
    fenced producers and of clients that guess.
    """

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        # Guards by epoch, by producer id. `begin` adds a guard. The first batch of the transaction,
        # a marker, or expiry removes it.
        self._guards: dict[int, dict[int, VerificationGuard]] = {}

    def begin(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, bumps_epoch: bool
    ) -> VerificationGuard:
        """Return the guard of the producer's next transaction."""
        of_producer = self._guards.setdefault(producer_id, {})
        guard = of_producer.get(epoch)
        if guard is None:
            guard = VerificationGuard(epoch, sequence, now_ms, bumps_epoch=bumps_epoch)
            of_producer[epoch] = guard
        else:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        return guard

    def confirm(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Accept the first batch of the transaction; return False if the guard was removed."""
        if self.find(producer_id, guard.epoch) is not guard:
            return False
        guard.is_verified = True
        return True

    def find(self, producer_id: int, epoch: int) -> VerificationGuard | None:
        """Return the guard of the producer's next transaction, or None."""
        return self._guards.get(producer_id, {}).get(epoch)

    def end(self, producer_id: int, kept_epoch: int = NO_EPOCH) -> None:
        """Remove the guards after the first batch of a transaction, or after a marker.

        Args:
            producer_id: the producer.
            kept_epoch: the producer epoch that the marker began, if any. Its guard stays.
        """
        if not self._guards:
            return
        kept = self._guards.pop(producer_id, {}).get(kept_epoch)
        if kept is not None:
            self._guards[producer_id] = {kept_epoch: kept}

    def remove_expired(self, oldest_ms: int) -> None:
        """Remove the guards that began at or before this time."""
        for producer_id, of_producer in list(self._guards.items()):
            for epoch, guard in list(of_producer.items()):
                if guard.began_ms <= oldest_ms:
                    del of_producer[epoch]
            if not of_producer:
                del self._guards[producer_id]
