"""Which transactions were aborted, while a log is read from its beginning (Kafka's
CleanedTransactionMetadata; KIP-98).

Records of an aborted transaction go at the first cleaning; its marker, and that of a committed
transaction, stays until none of the transaction's batches is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.control import ControlType, parse_control_key
from barnabas.record.reader import records_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.record.batch import BatchHeader, Buffer
    from barnabas.storage.transaction_index import AbortedEntry


class _Aborted(NamedTuple):
    entry: AbortedEntry
    # Whether a batch of it is still in the log.
    was_observed: bool


class CleanedTransactions:
    """Fed with every batch in the order of the log."""

    __slots__ = ("_aborted", "_committed", "_upcoming", "retained")

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        # Aborted transactions that begin further on, the next one last.
        self._upcoming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        # By producer id, those whose marker is still to come.
        self._aborted: dict[int, _Aborted] = {}
        # Producer ids of transactions, not aborted, of which a batch was seen.
        self._committed: set[int] = set()
        # Aborted ones whose marker has to stay; the new index has just these.
        self.retained: list[AbortedEntry] = []

    def on_batch(self, header: BatchHeader) -> bool:
        """A data batch was read; returns whether its transaction was aborted."""
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
        """A control batch was read; returns whether nothing of its transaction is left."""
        self._begin_up_to(header.last_offset)
        if not header.record_count:
            # Cleaned before: nothing is left of the transaction.
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
