"""Iterating over a consumer record by record, with positions that move record by record.

A poll moves positions behind all that it returns. So whatever else the user calls in the midst of
an iteration, the records that he has not seen are given back first: a commit commits what he saw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.consumer.consumer_records import ConsumerRecords
    from barnabas.client.record_decoding import ConsumedRecord

__all__ = ["ConsumerIterator"]


class ConsumerIterator:
    """The records of the last poll, and how many of them were seen."""

    __slots__ = ("_core", "_iterator", "_records", "_seen")

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._records: ConsumerRecords | None = None
        self._iterator: Iterator[ConsumedRecord] = iter(())
        self._seen = 0

    def begin(self, records: ConsumerRecords) -> None:
        """Go on with the records of a poll."""
        self._records = records
        self._iterator = iter(records)
        self._seen = 0

    def next(self) -> ConsumedRecord | None:
        """The next record, None when all were seen."""
        record = next(self._iterator, None)
        if record is None:
            self._records = None
        else:
            self._seen += 1
        return record

    def settle(self) -> None:
        """Give back what was not seen."""
        records, self._records = self._records, None
        if records is None:
            return
        self._iterator = iter(())
        seen = self._seen
        unseen = {}
        for tp, part in records.items():
            here = min(seen, len(part))
            seen -= here
            if here < len(part):
                unseen[tp] = len(part) - here
        if unseen:
            self._core.give_back(unseen)
