"""New messages as server-sent events, until the browser leaves or a limit is reached."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from barnabas.cli.common.printable import printable, printable_lines
from barnabas.client.errors import ClientError
from barnabas.console.messages.message_search import Match, ShownMessage, shown_message
from barnabas.console.web.rendering import moment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from barnabas import aio
    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.console.messages.message_decoding import Shown
    from barnabas.console.messages.shown_bytes import ShownBytes
    from barnabas.runtime.clock import Clock

__all__ = ["Tails"]

# A tail ends after this time (s); the browser shows a button to go on.
TAIL_S = 600.0
_MS_PER_S = 1000
_TAILS_MAX = 8
_CLOSE_S = 5.0
_POLL_S = 1.0
_POLL_RECORDS = 200
# Messages that are sent per poll; others are counted only.
_SHOWN_MAX = 25
# Pause after a poll with messages, so that a browser can draw them (s).
_PAUSE_S = 0.25
# A comment after this time without messages shows a browser that left.
_SILENT_POLLS = 10


class Tails:
    """All tails of a console: a bounded number, and the closing of their consumers."""

    def __init__(self, clock: Clock, shown: Shown) -> None:
        self._clock = clock
        self._shown = shown
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
        self, consumer: aio.Consumer, partitions: Sequence[TopicPartition], wanted: Match
    ) -> AsyncIterator[bytes]:
        """Yield events: `ready`, `message`, `skipped` (a count), `problem` (a text) and `end`.

        Args:
            consumer: A consumer without a group; it is closed at the end.
            partitions: The partitions to read from their ends on.
            wanted: What the records must contain.
        """
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
                records = await consumer.poll(_POLL_S, max_records=_POLL_RECORDS)
                fitting = [record for record in records if wanted.fits(record)]
                await self._shown.look_up(fitting[:_SHOWN_MAX])
                for event in _events(fitting, self._shown):
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


def _events(records: Sequence[ConsumerRecord], shown: Shown) -> Iterator[bytes]:
    for record in records[:_SHOWN_MAX]:
        yield _event("message", _as_json(shown_message(record, shown)))
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
