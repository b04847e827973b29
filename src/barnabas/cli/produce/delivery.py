"""Send the input, limited to a rate, and wait for its delivery."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.produce.records import Options, runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.cli.common.record_progress import Progress
    from barnabas.cli.produce.chunks import InputChunk
    from barnabas.cli.produce.creation_notice import CreationNotice
    from barnabas.client.producer.producer import SharedProducer

__all__ = ["Delivery", "Limits"]

# A rate limit is applied to this number of slices per second.
_SLICES_PER_S = 20


class Limits(NamedTuple):
    """Limits for the records to send."""

    # Records per second; None: no limit.
    rate: int | None = None
    records_max: int | None = None
    # Delimiter to print after each sent record on standard output; None: print no records.
    tee: bytes | None = None


class Delivery:
    """The delivery of records to one topic.

    Attributes:
        error: The message of the error that ended the delivery; None if there is none.
        interrupt: The interrupt that ended the reading, if any. Sent records are still delivered.
    """

    def __init__(
        self,
        producer: SharedProducer,
        topic: str,
        options: Options,
        limits: Limits,
        progress: Progress,
        notice: CreationNotice | None = None,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._options = options
        self._limits = limits
        self._progress = progress
        # Reports that the topic was created; None: no report.
        self._notice = notice
        self._remaining = limits.records_max
        # Number of the next line of the input, for error messages.
        self._next_line = 1
        self.error: str | None = None
        self.interrupt: KeyboardInterrupt | None = None

    def run(self, chunks: Iterable[InputChunk]) -> None:
        """Send all records and wait for their delivery. A second Ctrl-C stops the waiting."""
        from barnabas.client.errors import ClientError

        producer = self._producer
        try:
            try:
                self._send_all(chunks)
            except KeyboardInterrupt as interrupt:
                self.interrupt = interrupt
            producer.close()
        except (ClientError, ValueError) as error:
            self.error = str(error)
            with contextlib.suppress(ClientError):
                producer.close(flush=not isinstance(error, ClientError))

    def _send_all(self, chunks: Iterable[InputChunk]) -> None:
        for chunk in chunks:
            if not chunk.pieces:
                self._producer.flush()
                continue
            pieces = chunk.pieces
            if self._remaining is not None:
                pieces = pieces[: self._remaining]
                self._remaining -= len(pieces)
            for number, part in enumerate(self._at_rate(pieces)):
                self._send(part)
                self._progress.advance(len(part), 0 if number else chunk.size)
                # A slow and steady input must also be sent after linger.ms.
                self._producer.poll(0)
            if self._remaining == 0:
                return

    def _at_rate(self, pieces: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        rate = self._limits.rate
        if rate is None:
            yield pieces
            return
        at_once = max(1, rate // _SLICES_PER_S)
        for start in range(0, len(pieces), at_once):
            part = pieces[start : start + at_once]
            due = time.monotonic() + len(part) / rate
            yield part
            while (wait := due - time.monotonic()) > 0:
                time.sleep(min(wait, 1 / _SLICES_PER_S))
                self._producer.poll(0)

    def _send(self, pieces: Sequence[bytes]) -> None:
        first, self._next_line = self._next_line, self._next_line + len(pieces)
        for run in runs(pieces, self._options, first):
            if not run.records:
                continue
            if self._notice is not None:
                self._notice.before_send()
            self._producer.send_batch(self._topic, run.records, run.partition)
            if self._notice is not None:
                self._notice.after_send()
        if self._limits.tee is not None:
            behind = self._limits.tee
            sys.stdout.buffer.write(b"".join([piece + behind for piece in pieces]))
            sys.stdout.buffer.flush()
