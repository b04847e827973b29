"""Iterating over a consumer record by record, with positions that move record by record.

A poll moves positions behind all that it returns. So whatever else the user calls in the midst of
an iteration, the records that he has not seen are given back first: a commit commits what he saw.
"""

from __future__ import annotations

from collections import deque
from operator import length_hint
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.consumer.consumer_records import ConsumerRecords
    from barnabas.client.record_decoding import ConsumerRecord

__all__ = ["ConsumerIterator"]


class ConsumerIterator:
    """The records of the last poll, and how many of them were seen.

    Attributes:
        rows: an iterator over a list: how many records are left in it is known without counting.
    """

    __slots__ = ("_core", "_records", "rows")

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._records: ConsumerRecords | None = None
        self.rows: Iterator[ConsumerRecord] = iter([])

    def begin(self, records: ConsumerRecords) -> None:
        """Go on with the records of a poll."""
        self.rows = iter(list(records))
        self._records = records

    @property
    def has_rows(self) -> bool:
        """Whether there are records left."""
        return length_hint(self.rows) > 0

    def settle(self) -> None:
        """Give back what was not seen."""
        records, self._records = self._records, None
        if records is None or not self.has_rows:
            return
        seen = len(records) - length_hint(self.rows)
        # Whoever still iterates over these gets no more of them.
        deque(self.rows, maxlen=0)
        unseen = {}
        for tp, part in records.items():
            here = min(seen, len(part))
            seen -= here
            if here < len(part):
                unseen[tp] = len(part) - here
        self._core.give_back(unseen)
