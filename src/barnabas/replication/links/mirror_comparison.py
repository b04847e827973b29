"""Compares the log of a mirror with its source's, batch by batch.

Both logs had the same records at the same offsets once. If the source has lost records, for example
by an unclean election, both are equal below an offset and differ from there on. The leader epochs
of the source are not in the mirror's log, so the batches themselves are compared: by their CRC,
which does not cover the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import HEADER_SIZE, batches, read_header
from barnabas.record.record import CorruptBatchError
from barnabas.replication.partition.results import UNKNOWN_OFFSET
from barnabas.storage.errors import StorageError
from barnabas.storage.results import FetchIsolation

if TYPE_CHECKING:
    from barnabas.record.batch import BatchHeader
    from barnabas.storage.log.log import Log

# Batches that are compared at once: each reads a header of the mirror.
_BATCHES_AT_ONCE = 64


def last_batch_offset(log: Log) -> int:
    """Return the base offset of the last batch; -1 if the log is empty or damaged there."""
    if log.log_end_offset == log.log_start_offset:
        return UNKNOWN_OFFSET
    header = local_header(log, log.log_end_offset - 1)
    return UNKNOWN_OFFSET if header is None else header.base_offset


def local_header(log: Log, offset: int) -> BatchHeader | None:
    """Read the header of the batch that contains `offset`, or of the next one; None without one."""
    try:
        read = log.reader.read(offset, HEADER_SIZE, FetchIsolation.LOG_END, min_one_batch=False)
        data = read.content()
        return read_header(data) if len(data) >= HEADER_SIZE else None
    except (StorageError, CorruptBatchError):
        return None


def are_equal(own: BatchHeader, theirs: BatchHeader, *, is_compacted: bool) -> bool:
    """Return whether two batches are the same. Compaction changes the records, not the offsets."""
    if own.base_offset != theirs.base_offset or own.last_offset_delta != theirs.last_offset_delta:
        return False
    if is_compacted:
        own_producer = own.producer_id, own.producer_epoch, own.base_sequence
        return own_producer == (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence)
    return own.crc == theirs.crc


class DivergenceSearch:
    """Finds the first batch of a mirror's log that the source does not have, by bisection.

    The caller fetches the source's records from `probe` and gives them to `on_records`, until
    `is_found`.
    """

    __slots__ = ("_high", "_low", "probe")

    def __init__(self, log: Log, differing: int) -> None:
        """Begin a search.

        Args:
            log: the mirror's log.
            differing: base offset of a batch that the source does not have.
        """
        # The logs are equal below this offset. What is only in the remote tier is not compared.
        self._low = log.local_log_start_offset
        # Base offset of the first batch that is known to differ.
        self._high = differing
        # Base offset of the batch to compare next; -1 if there is none.
        self.probe = UNKNOWN_OFFSET
        self._choose_probe(log)

    @property
    def is_found(self) -> bool:
        """Whether `divergence` is known."""
        return self.probe == UNKNOWN_OFFSET

    @property
    def divergence(self) -> int:
        """The offset from which the logs differ."""
        assert self.is_found, f"low={self._low} high={self._high} probe={self.probe}"
        return self._high

    def on_records(self, log: Log, records: memoryview | bytes) -> None:
        """Compare the source's batches from `probe` on with those of the mirror.

        Batches that only one side has, because the other has compacted them, show nothing. If no
        batch can be compared, the mirror's counts as different: the truncation may remove more than
        necessary, which is fetched again, but never less.
        """
        is_compacted = log.config.is_compacted
        equal_end = UNKNOWN_OFFSET
        for theirs in _headers(records):
            if theirs.base_offset >= self._high:
                break
            own = local_header(log, theirs.base_offset)
            if is_compacted and (own is None or own.base_offset != theirs.base_offset):
                continue
            if own is None or not are_equal(own, theirs, is_compacted=is_compacted):
                first = theirs.base_offset
                self._high = min(self._high, first if own is None else min(first, own.base_offset))
                break
            equal_end = theirs.next_offset
        if equal_end == UNKNOWN_OFFSET:
            self._high = min(self._high, self.probe)
        self._low = min(max(self._low, equal_end), self._high)
        self._choose_probe(log)

    def _choose_probe(self, log: Log) -> None:
        """Choose the batch in the middle of those that may be equal, or the first of them."""
        middle = (self._low + self._high) // 2
        for offset in (middle, self._low):
            header = local_header(log, offset) if offset < self._high else None
            if header is not None and header.base_offset < self._high:
                self.probe = header.base_offset
                return
        self.probe = UNKNOWN_OFFSET


def _headers(records: memoryview | bytes) -> list[BatchHeader]:
    """Return the headers of the first complete batches."""
    found: list[BatchHeader] = []
    try:
        for _, header in batches(records):
            found.append(header)
            if len(found) == _BATCHES_AT_ONCE:
                break
    except CorruptBatchError:
        # Batches before the damage can be compared.
        pass
    return found
