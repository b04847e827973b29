"""Iterate over a consumer record by record, with positions that move record by record.

A poll moves the positions after all records that it returns. If the user makes another call during
an iteration, the records that the user has not seen are given back first. So a commit covers
exactly the records that were iterated.
"""

from __future__ import annotations

from collections import deque
from operator import length_hint
from typing import TYPE_CHECKING

from barnabas.client.errors import CorruptRecordsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.consumer.records.consumer_records import ConsumerRecords
    from barnabas.client.consumer.records.partition_records import PartitionRecords
    from barnabas.client.fetch.record_decoding import ConsumerRecord
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["ConsumerIterator"]


class ConsumerIterator:
    """The records of the last poll, and how many of them the user has seen.

    Attributes:
        rows: A list iterator over the records; `length_hint` returns how many are left.
    """

    __slots__ = ("_core", "_error", "_parts", "rows")

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        # For each partition: the number of records in `rows` at its start, and the number in the
        # poll. The first is smaller if a batch could not be decoded.
        self._parts: dict[TopicPartition, tuple[int, int]] = {}
        # The error of a batch that cannot be decoded, or None; raised after the records before the
        # batch.
        self._error: CorruptRecordsError | None = None
        self.rows: Iterator[ConsumerRecord] = iter([])

    def begin(self, records: ConsumerRecords) -> None:
        """Start to iterate over the records of a poll."""
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
        """Raise the pending decode error, once all readable records were iterated.

        Raises:
            CorruptRecordsError: A batch of the last poll could not be decoded.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error

    @property
    def has_rows(self) -> bool:
        """Whether there are records left."""
        return length_hint(self.rows) > 0

    def give_back_unseen(self) -> None:
        """Give the records that the user has not seen back to the consumer."""
        parts, self._parts = self._parts, {}
        if not self.has_rows:
            return
        seen = sum(readable for readable, _ in parts.values()) - length_hint(self.rows)
        # Exhaust the iterator, so that a loop over it ends.
        deque(self.rows, maxlen=0)
        unseen = {}
        for tp, (readable, whole) in parts.items():
            here = min(seen, readable)
            seen -= here
            if here < whole:
                unseen[tp] = whole - here
        self._core.give_back(unseen)
