"""Iterating over a consumer record by record, with positions that move record by record.

A poll moves positions behind all that it returns. So whatever else the user calls in the midst of
an iteration, the records that he has not seen are given back first: a commit commits what he saw.
"""

from __future__ import annotations

from collections import deque
from operator import length_hint
from typing import TYPE_CHECKING

from barnabas.client.errors import CorruptRecordsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.consumer.consumer_records import ConsumerRecords
    from barnabas.client.consumer.partition_records import PartitionRecords
    from barnabas.client.record_decoding import ConsumerRecord
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["ConsumerIterator"]


class ConsumerIterator:
    """The records of the last poll, and how many of them were seen.

    Attributes:
        rows: an iterator over a list: how many records are left in it is known without counting.
    """

    __slots__ = ("_core", "_error", "_parts", "rows")

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        # By partition, how many records `rows` had at its start, and how many the poll gave.
        self._parts: dict[TopicPartition, tuple[int, int]] = {}
        # Of a batch that cannot be decoded; raised when what could be was iterated.
        self._error: CorruptRecordsError | None = None
        self.rows: Iterator[ConsumerRecord] = iter([])

    def begin(self, records: ConsumerRecords) -> None:
        """Go on with the records of a poll."""
        rows: list[ConsumerRecord] = []
        for tp, part in records.items():
            readable = self._readable(part)
            rows += readable
            self._parts[tp] = (len(readable), len(part))
        self.rows = iter(rows)

    def _readable(self, part: PartitionRecords) -> list[ConsumerRecord]:
        try:
            return list(part)
        except CorruptRecordsError as error:
            self._error = self._error or error
            return list(part.before(error.offset))

    def check(self) -> None:
        """Before the next poll: all that could be read of the last one was iterated.

        Raises:
            CorruptRecordsError: of what could not.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error

    @property
    def has_rows(self) -> bool:
        """Whether there are records left."""
        return length_hint(self.rows) > 0

    def settle(self) -> None:
        """Give back what was not seen."""
        parts, self._parts = self._parts, {}
        if not self.has_rows:
            return
        seen = sum(readable for readable, _ in parts.values()) - length_hint(self.rows)
        # Whoever still iterates over these gets no more of them.
        deque(self.rows, maxlen=0)
        unseen = {}
        for tp, (readable, whole) in parts.items():
            here = min(seen, readable)
            seen -= here
            if here < whole:
                unseen[tp] = whole - here
        self._core.give_back(unseen)
