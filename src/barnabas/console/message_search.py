"""Search of messages, which is bounded, and new messages as server-sent events.

A search says where and why it ended. A tail ends when the browser leaves or a limit is reached.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.cli.common.printable import printable, printable_lines
from barnabas.client.errors import ClientError
from barnabas.console.formats import moment, size

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from barnabas import aio
    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.console.messages.decoded import Decoded, ShownBytes
    from barnabas.console.messages.record_view import DecodedRecord, RecordView, ShownMessage
    from barnabas.console.settings import SearchLimits
    from barnabas.runtime.clock import Clock

_POLL_RECORDS = 500
_POLL_S = 0.5
_MS_PER_S = 1000


class Match(NamedTuple):
    """The content that a record must have; empty fields match all."""

    key: bytes = b""
    value: bytes = b""
    # A header's name, and a part of its value.
    header_name: str = ""
    header_value: bytes = b""

    def fits(self, record: DecodedRecord) -> bool:
        """Return whether the record contains all that is wanted."""
        return (
            (not self.key or _contains(record.key, self.key))
            and (not self.value or _contains(record.value, self.value))
            and (not self.header_name or self._fits_header(record))
        )

    def _fits_header(self, record: DecodedRecord) -> bool:
        return any(
            name == self.header_name and _contains(value, self.header_value)
            for name, value in record.headers
        )


def _contains(part: Decoded, wanted: bytes) -> bool:
    """Return whether the bytes or the text contain this; masked parts have no bytes."""
    if part.raw is not None and wanted in part.raw:
        return True
    return wanted.decode(errors="replace") in part.text


@dataclass(slots=True)
class Found:
    """The result of a search."""

    messages: list[ShownMessage] = field(default_factory=list)
    # Number of records and bytes that were examined.
    records: int = 0
    size: int = 0
    # Why the search ended early; "" if it has examined everything.
    limit: str = ""
    # The next offset to examine, by partition; only partitions with a rest.
    rest: dict[int, int] = field(default_factory=dict)


class MessageSearch:
    """One search in ranges of offsets.

    Args:
        consumer: A consumer without a group.
        clock: Measures the time.
        limits: Where the search ends.
        wanted: What the records must contain, and how they are shown.
        results_max: Number of records after which the search ends; with `keep_newest`, the number
            of records that it keeps.
        keep_newest: Whether to examine all ranges and keep the records with the newest timestamps.
    """

    def __init__(
        self,
        consumer: aio.Consumer,
        clock: Clock,
        limits: SearchLimits,
        wanted: tuple[Match, RecordView],
        results_max: int,
        *,
        keep_newest: bool = False,
    ) -> None:
        self._consumer = consumer
        self._clock = clock
        self._limits = limits
        self._wanted, self._view = wanted
        self._results_max = results_max
        self._found = Found()
        # A heap, the oldest first, of at most `results_max`; None if results are kept in order.
        self._newest: list[tuple[int, int, int, ShownMessage]] | None = [] if keep_newest else None

    async def run(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Found:
        """Examine the records of all ranges.

        Args:
            ranges: First offset and end (exclusive) by partition.

        Returns:
            The records in the order in which they were read; the newest first with `keep_newest`.
        """
        found = self._found
        # The next offset to examine, of partitions with a rest.
        left = {tp: start for tp, (start, end) in ranges.items() if start < end}
        if left:
            self._consumer.assign(list(left))
            for tp, start in left.items():
                self._consumer.seek(tp, start)
        deadline_ms = self._clock.monotonic_ms() + self._limits.seconds * _MS_PER_S
        while left and not found.limit:
            remaining_s = (deadline_ms - self._clock.monotonic_ms()) / _MS_PER_S
            if remaining_s <= 0:
                found.limit = f"{self._limits.seconds:g} s"
                break
            records = await self._consumer.poll(
                min(_POLL_S, remaining_s), max_records=_POLL_RECORDS
            )
            await self._view.look_up(records)
            for tp, part in records.items():
                if tp in left and not found.limit:
                    self._examine(part, tp, ranges[tp][1], left)
            await self._drop_finished(ranges, left, dict(records.next_offsets))
        found.rest = {tp.partition: offset for tp, offset in left.items()}
        if self._newest is not None:
            found.messages = [entry[-1] for entry in sorted(self._newest, reverse=True)]
        return found

    def _examine(
        self,
        records: Sequence[ConsumerRecord],
        tp: TopicPartition,
        end: int,
        left: dict[TopicPartition, int],
    ) -> None:
        found, limits = self._found, self._limits
        for record in records:
            if record.offset >= end:
                left[tp] = end
                return
            left[tp] = record.offset + 1
            found.records += 1
            found.size += _size(record)
            decoded = self._view.decode(record)
            if self._wanted.fits(decoded):
                self._keep(decoded)
            if found.records >= limits.records:
                found.limit = f"{limits.records} records"
            if found.size >= limits.size:
                found.limit = size(limits.size)
            if found.limit:
                return

    def _keep(self, record: DecodedRecord) -> None:
        found = self._found
        if self._newest is None:
            found.messages.append(record.shown())
            if len(found.messages) >= self._results_max:
                found.limit = f"{self._results_max} results"
            return
        place = (record.timestamp, record.partition, record.offset)
        if len(self._newest) < self._results_max:
            heapq.heappush(self._newest, (*place, record.shown()))
        elif place > self._newest[0][:3]:
            heapq.heapreplace(self._newest, (*place, record.shown()))

    async def _drop_finished(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        left: dict[TopicPartition, int],
        polled: Mapping[TopicPartition, object],
    ) -> None:
        """Drop partitions whose range is examined; the last offsets may hold no records."""
        for tp in list(left):
            if not self._found.limit and tp not in polled:
                # Behind a gap (compaction, markers of transactions), only the position moves.
                left[tp] = max(left[tp], await self._consumer.position(tp))
            if left[tp] >= ranges[tp][1]:
                del left[tp]
                self._consumer.pause(tp)


def _size(record: ConsumerRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


# A tail ends after this time (s); the browser shows a button to go on.
TAIL_S = 600.0
_TAILS_MAX = 8
_CLOSE_S = 5.0
_TAIL_POLL_S = 1.0
_TAIL_POLL_RECORDS = 200
# Messages that are sent per poll; others are counted only.
_SHOWN_MAX = 25
# Pause after a poll with messages, so that a browser can draw them (s).
_PAUSE_S = 0.25
# A comment after this time without messages shows a browser that left.
_SILENT_POLLS = 10


class Tails:
    """All tails of a console: a bounded number, and the closing of their consumers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._has_ended = False
        # Consumers that are being closed. The event loop holds only weak references to tasks.
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def is_full(self) -> bool:
        """Whether no further tail may begin."""
        return self._count >= _TAILS_MAX

    def end(self) -> None:
        """End all tails at their next poll, because the server ends."""
        self._has_ended = True

    async def events(
        self,
        consumer: aio.Consumer,
        partitions: Sequence[TopicPartition],
        wanted: tuple[Match, RecordView],
    ) -> AsyncIterator[bytes]:
        """Yield events: `ready`, `message`, `skipped` (a count), `problem` (a text) and `end`.

        Args:
            consumer: A consumer without a group; it is closed at the end.
            partitions: The partitions to read from their ends on.
            wanted: What the records must contain, and how they are shown.
        """
        match, view = wanted
        self._count += 1
        ends_ms = self._clock.monotonic_ms() + TAIL_S * _MS_PER_S
        try:
            consumer.assign(partitions)
            consumer.seek_to_end(*partitions)
            for tp in partitions:
                await consumer.position(tp)
            yield _event("ready", {})
            silent = 0
            while self._clock.monotonic_ms() < ends_ms and not self._has_ended:
                records = await consumer.poll(_TAIL_POLL_S, max_records=_TAIL_POLL_RECORDS)
                await view.look_up(records)
                decoded = (view.decode(record) for record in records)
                fitting = [record for record in decoded if match.fits(record)]
                for event in _events(fitting):
                    yield event
                silent = 0 if fitting else silent + 1
                if silent >= _SILENT_POLLS:
                    silent = 0
                    yield b": nothing new\n\n"
                if records:
                    await asyncio.sleep(_PAUSE_S)
            reason = "the console ended" if self._has_ended else "ended after ten minutes"
            yield _event("end", {"text": reason})
        except ClientError as error:
            yield _event("problem", {"text": str(error)})
        finally:
            self._count -= 1
            # A task of its own, because this one may be canceled.
            task = asyncio.get_running_loop().create_task(consumer.close(_CLOSE_S))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _events(records: Sequence[DecodedRecord]) -> Iterator[bytes]:
    for record in records[:_SHOWN_MAX]:
        yield _event("message", _as_json(record.shown()))
    if len(records) > _SHOWN_MAX:
        yield _event("skipped", {"count": len(records) - _SHOWN_MAX})


def _event(name: str, data: dict[str, Any]) -> bytes:
    # JSON has no raw newlines, which would end the event.
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _as_json(message: ShownMessage) -> dict[str, Any]:
    return {
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "time": moment(message.timestamp),
        "key": _bytes_as_json(message.key),
        "value": _bytes_as_json(message.value),
        "headers": [[printable(name), printable(value.text)] for name, value in message.headers],
    }


def _bytes_as_json(shown: ShownBytes) -> dict[str, Any]:
    return {
        "kind": shown.kind,
        "text": printable_lines(shown.text),
        "size": shown.size,
        "cut": shown.is_cut,
        "note": printable(shown.note),
    }
