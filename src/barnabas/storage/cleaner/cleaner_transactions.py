"""Aborted transactions of a log that is read from its start (CleanedTransactionMetadata; KIP-98).

The first cleaning removes the records of an aborted transaction. The marker of an aborted or a
committed transaction is kept until all batches of the transaction are removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.control import ControlType, parse_control_key
from barnabas.record.reader import records_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.record.batch import BatchHeader, Buffer
    from barnabas.storage.segment.transaction_index import AbortedEntry


class _Aborted(NamedTuple):
    entry: AbortedEntry
    # Whether the log still has a batch of the transaction.
    was_observed: bool


class CleanedTransactions:
    """State of transactions while all batches are read in log order."""

    __slots__ = ("_aborted", "_committed", "_upcoming", "retained")

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        # Aborted transactions that begin later in the log; the next one is last in the list.
        self._upcoming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        # Key: producer id. Aborted transactions whose marker has not been read.
        self._aborted: dict[int, _Aborted] = {}
        # Producer ids with a transactional batch that is not known to be aborted.
        self._committed: set[int] = set()
        # Aborted transactions whose marker is kept; they form the new transaction index.
        self.retained: list[AbortedEntry] = []

    def on_batch(self, header: BatchHeader) -> bool:
        """Process a data batch; return whether its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        known = self._aborted.get(header.producer_id)
        if known is None:
            self._committed.add(header.producer_id)
            return False
        if not known.was_observed:
            self._aborted[header.producer_id] = _Aborted(known.entry, was_observed=True)
        return True

    def on_control_batch(self, batch: Buffer, position: int, header: BatchHeader) -> bool:
        """Process a control batch; return whether its transaction has no batches left."""
        self._begin_up_to(header.last_offset)
        if not header.record_count:
            # An earlier cleaning emptied the marker, because no batches were left.
            return True
        control_type = parse_control_key(records_of(batch, position, header)[0].key)
        if control_type is ControlType.ABORT:
            known = self._aborted.pop(header.producer_id, None)
            if known is None or not known.was_observed:
                return True
            self.retained.append(known.entry)
            return False
        if control_type is ControlType.COMMIT:
            was_observed = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not was_observed
        return False

    def _begin_up_to(self, offset: int) -> None:
        upcoming = self._upcoming
        while upcoming and upcoming[-1].first_offset <= offset:
            entry = upcoming.pop()
            self._aborted.setdefault(entry.producer_id, _Aborted(entry, was_observed=False))
