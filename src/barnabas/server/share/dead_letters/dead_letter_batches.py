"""Builds the record batches of one Produce request with dead-letter records (KIP-1191)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.record.builder import BatchBuilder
from barnabas.server.share.dead_letters.dead_letter import OFFSET_HEADER, OFFSET_INDEX
from barnabas.server.share.dead_letters.source_records import SourceRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from barnabas.server.share.dead_letters.dead_letter_settings import DeadLetterSettings
    from barnabas.server.share.dead_letters.pending_letter import PendingLetter
    from barnabas.server.share.dead_letters.source_records import SourceLog
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.off_loop import OffLoop

# Size at which a batch gets no more records, even if the topic accepts larger batches.
_BATCH_BYTES_MAX = 1 << 20
# Maximum size of all batches of a request, except that the first record always fits.
_REQUEST_BYTES_MAX = 4 << 20
# Records per step of the work.
_RECORDS_PER_STEP = 64


class DeadLetterBatches:
    """Batches by partition of dead-letter topics, each with records of one or more letters."""

    __slots__ = ("_builders", "_log", "_now_ms", "_settings", "deferred")

    def __init__(
        self, settings: DeadLetterSettings, log: SourceLog, now_ms: Callable[[], int]
    ) -> None:
        """Create without records.

        Args:
            settings: the configs of groups and topics.
            log: reads the records that are copied.
            now_ms: returns the wall-clock time, the timestamp of the records.
        """
        self._settings = settings
        self._log = log
        self._now_ms = now_ms
        self._builders: dict[TopicPartition, BatchBuilder] = {}
        # Letters that do not fit.
        self.deferred: list[PendingLetter] = []

    def build(
        self, letters: Iterable[PendingLetter]
    ) -> Generator[OffLoop | None, Any, DeadLetterBatches]:
        """Add letters in steps, until the request is full."""
        for pending in letters:
            if sum(each.estimated_size for each in self._builders.values()) >= _REQUEST_BYTES_MAX:
                self.deferred.append(pending)
                continue
            yield from self._add(pending)
        return self

    def content(self) -> dict[TopicPartition, bytearray]:
        """Return the batches."""
        return {key: builder.build() for key, builder in self._builders.items()}

    def _add(self, pending: PendingLetter) -> Generator[OffLoop | None, Any, None]:
        letter, offset = pending.letter, pending.next_offset
        limit = min(_BATCH_BYTES_MAX, self._settings.max_bytes(pending.target.topic))
        builder = self._builders.get(pending.target)
        if builder is None:
            builder = self._builders[pending.target] = BatchBuilder(max_bytes=limit)
        elif builder.estimated_size >= limit:
            self.deferred.append(pending)
            return
        source, last = None, letter.last
        if self._settings.copies_records(letter.group_id):
            source = SourceRecords(self._log, letter.where, (offset, last), limit)
            yield from source.read()
            last = source.last
        headers, added = letter.headers(), pending.next_offset - 1
        for offset in range(pending.next_offset, last + 1):
            key, value = (None, None) if source is None else source.content(offset)
            headers[OFFSET_INDEX] = (OFFSET_HEADER, str(offset).encode())
            if builder.append(self._now_ms(), key, value, headers) is None:
                break
            added = offset
            if offset % _RECORDS_PER_STEP == 0:
                yield None
        if added < pending.next_offset:
            self.deferred.append(pending)
        else:
            pending.sent_last = added
