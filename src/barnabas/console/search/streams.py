"""Responses that last long: new messages as server-sent events, and downloads.

A client may read slowly. So a download waits in a spool, and holds nothing for which others wait.
The number of these responses is bounded. They end when the browser leaves, a limit is reached, or
the server ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from barnabas.client.errors import ClientError
from barnabas.console.search.columns import row_of
from barnabas.console.search.expressions import ExpressionError, FilterTooSlowError
from barnabas.console.search.scan import slices

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.console.messages.reading import RecordReader
    from barnabas.console.messages.record_view import DecodedRecord
    from barnabas.console.search.columns import Row
    from barnabas.console.search.expressions import ExpressionFilter
    from barnabas.console.search.jobs import Search
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.spool import Spool

# A tail ends after this time (s); the browser shows a button to go on.
TAIL_S = 600.0
_STREAMS_MAX = 8
_MS_PER_S = 1000
_POLL_S = 1.0
_POLL_RECORDS = 200
# Messages that are sent per poll; others are counted only.
_SHOWN_MAX = 25
# Pause after a poll with messages, so that a browser can draw them (s).
_PAUSE_S = 0.25
# A comment after this time without messages shows a browser that left.
_SILENT_POLLS = 10


class SlowClientError(RuntimeError):
    """A client reads a download too slowly; its connection is closed."""


async def read_spool(spool: Spool, clock: Clock, ends_ms: float) -> AsyncIterator[bytes]:
    """Yield the bytes of a spool.

    Args:
        spool: The bytes for a client.
        clock: Measures the time.
        ends_ms: When the client must have read them (monotonic clock).

    Raises:
        SlowClientError: It has not.
    """
    while piece := await asyncio.to_thread(spool.read):
        yield piece
        if clock.monotonic_ms() > ends_ms:
            raise SlowClientError("the client did not read a download within its time limit")


class Streams:
    """All streams of a console: a bounded number, and the closing of their consumers."""

    def __init__(self) -> None:
        self._count = 0
        # Whether the server ends.
        self.has_ended = False
        # Readers that are being closed. The event loop holds only weak references to tasks.
        self._closing: set[asyncio.Task[None]] = set()

    def check(self) -> None:
        """Check that a further stream may begin.

        Raises:
            HTTPException: Too many run (503).
        """
        if self._count >= _STREAMS_MAX:
            raise HTTPException(
                503, "too many browsers follow messages or download: stop one of them"
            )

    def end(self) -> None:
        """End all tails at their next poll, because the server ends."""
        self.has_ended = True

    async def counted(
        self, parts: AsyncGenerator[bytes], reader: RecordReader | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield the parts of a stream; close its reader at the end."""
        self._count += 1
        try:
            async with contextlib.aclosing(parts):
                async for part in parts:
                    yield part
        finally:
            self._count -= 1
            if reader is not None:
                # A task of its own, because this one may be canceled.
                task = asyncio.get_running_loop().create_task(reader.aclose())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)


class Tail:
    """New messages as server-sent events.

    Args:
        search: What is searched.
        expressions: Evaluates the expression of the search.
        clock: Measures the time.
        render: Returns a row of the list as HTML.
    """

    def __init__(
        self,
        search: Search,
        expressions: ExpressionFilter,
        clock: Clock,
        render: Callable[[Row], str],
    ) -> None:
        self._search = search
        self._expressions = expressions
        self._clock = clock
        self._render = render

    async def events(
        self, reader: RecordReader, partitions: Sequence[TopicPartition], streams: Streams
    ) -> AsyncGenerator[bytes]:
        """Yield events: `ready`, `message`, `skipped` (a count), `problem` (a text) and `end`.

        Args:
            reader: Reads the records.
            partitions: The partitions to read from their ends on.
            streams: Says when the server ends.
        """
        ends_ms = self._clock.monotonic_ms() + TAIL_S * _MS_PER_S
        try:
            positions = await reader.consumer.end_offsets(partitions)
            reader.begin()
            yield _event("ready", {})
            silent = 0
            while self._clock.monotonic_ms() < ends_ms and not streams.has_ended:
                rows, count = await self._poll(reader, positions)
                for row in rows:
                    yield _event("message", {"row": self._render(row)})
                if count > len(rows):
                    yield _event("skipped", {"count": count - len(rows)})
                silent = 0 if count else silent + 1
                if silent >= _SILENT_POLLS:
                    silent = 0
                    yield b": nothing new\n\n"
                if count:
                    await asyncio.sleep(_PAUSE_S)
            reason = "the console ended" if streams.has_ended else "ended after ten minutes"
            yield _event("end", {"text": reason})
        except (ClientError, ExpressionError, FilterTooSlowError) as error:
            yield _event("problem", {"text": str(error)})

    async def _poll(
        self, reader: RecordReader, positions: dict[TopicPartition, int]
    ) -> tuple[list[Row], int]:
        """Return the first new records that fulfill the conditions, and the number of all.

        Args:
            reader: Reads the records.
            positions: The next offset of each partition, which moves.
        """
        rows: list[Row] = []
        count = 0
        async with reader.poll(positions, _POLL_S, _POLL_RECORDS) as fetched:
            positions.update(fetched.next_offsets)
            while fetched.parts:
                tp, records = fetched.parts.pop(0)
                for part in slices(iter(records)):
                    found = await reader.marks.mark(tp, await self._select(part))
                    count += len(found)
                    left = _SHOWN_MAX - len(rows)
                    rows += (row_of(each, self._search.columns) for each in found[:left])
                    await asyncio.sleep(0)
        return rows, count

    async def _select(self, part: Sequence[ConsumerRecord]) -> list[DecodedRecord]:
        view, conditions = self._search.view, self._search.conditions
        await view.look_up(part)
        decoded = await view.decode_all(part, conditions.fits_texts)
        return (await conditions.select(decoded, self._expressions)).records


def _event(name: str, data: dict[str, Any]) -> bytes:
    # JSON has no raw newlines, which would end the event.
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
