"""Committed batches in log order, from memory if this leader appended them, else from the log."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from barnabas.raft.log.metadata_batch import decode_metadata_batches
from barnabas.storage.results import FetchIsolation

if TYPE_CHECKING:
    from barnabas.raft.listener import CommittedBatch
    from barnabas.storage.log.log import Log

_READ_BYTES_MAX = 8 * 1024 * 1024


class CommitQueue:
    """Returns each batch below the high watermark exactly once."""

    __slots__ = ("_expected", "_log", "next_offset")

    def __init__(self, log: Log) -> None:
        self._log = log
        # Offset of the first record that `take` has not returned yet.
        self.next_offset = 0
        # Batches that this leader appended and that `take` has not returned yet, in log order.
        self._expected: deque[CommittedBatch] = deque()

    def expect(self, batch: CommittedBatch) -> None:
        """Keep a batch that this leader is about to append, which avoids decoding it again."""
        self._expected.append(batch)

    def forget_expected(self) -> None:
        """Drop the kept batches after leadership is lost, because they may be truncated."""
        self._expected.clear()

    def take(self, high_watermark: int) -> list[CommittedBatch]:
        """Return the next batches below the high watermark, including control batches.

        One call returns about 8 MiB at most, and an empty list when all batches are delivered.
        """
        if self.next_offset >= high_watermark:
            return []
        batches: list[CommittedBatch] = []
        expected = self._expected
        while expected and expected[0].base_offset == self.next_offset:
            if expected[0].last_offset >= high_watermark:
                break
            batches.append(expected.popleft())
            self.next_offset = batches[-1].last_offset + 1
        return batches or self._read()

    def _read(self) -> list[CommittedBatch]:
        result = self._log.read(
            self.next_offset, _READ_BYTES_MAX, FetchIsolation.HIGH_WATERMARK, True
        )
        records = result.records
        content = records if isinstance(records, bytes) else records.read()
        batches = [
            batch
            for batch in decode_metadata_batches(content)
            if batch.last_offset >= self.next_offset
        ]
        assert batches, f"nothing to read at {self.next_offset}"
        self.next_offset = batches[-1].last_offset + 1
        return batches
