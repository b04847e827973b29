"""Committed batches in log order: what this leader appended itself, else read back from the log."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from barnabas.raft.metadata_batch import decode_metadata_batches
from barnabas.storage.read_result import FetchIsolation

if TYPE_CHECKING:
    from barnabas.raft.listener import CommittedBatch
    from barnabas.storage.log import Log

_READ_BYTES_MAX = 8 * 1024 * 1024


class CommitQueue:
    """Hands out each batch below the high watermark once."""

    __slots__ = ("_expected", "_log", "next_offset")

    def __init__(self, log: Log) -> None:
        self._log = log
        # Offset of the first record that was not handed out yet.
        self.next_offset = 0
        # Batches that this leader appended and that are not handed out yet.
        self._expected: deque[CommittedBatch] = deque()

    def expect(self, batch: CommittedBatch) -> None:
        """The leader is about to append this batch: it need not be decoded again."""
        self._expected.append(batch)

    def forget_expected(self) -> None:
        """The leadership is over: what was appended may be cut off again."""
        self._expected.clear()

    def take(self, high_watermark: int) -> list[CommittedBatch]:
        """The next batches below the high watermark, control batches too; empty at the end.

        At most some 8 MiB at a time.
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
