"""Print records as they arrive, as text or JSON lines, and commit the offsets of printed records.

JSON lines have the format that `barnabas produce --from-json` reads.
"""

from __future__ import annotations

import base64
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from barnabas.cli.common.output import warning
from barnabas.cli.common.printable import echo, printable_bytes
from barnabas.cli.records.templates import Reading, Render, field
from barnabas.client.errors import ClientError, RecordDeserializationError
from barnabas.runtime.stepper import DeferredInterrupt
from barnabas.runtime.system_calls import has_reader_ended

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Sequence

    from barnabas.cli.records.formats import Format, Progress
    from barnabas.cli.records.source import Chunk, ErrorPolicy, Source
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.record.compiled import CompiledRecord

_POLL_MS = 500.0
# Number of polls without a record before the command says why it waits.
_SILENT_POLLS = 2
# Number of polls without a record before the reason is looked up again.
_REPEATED_POLLS = 10
# Interval of commits for a group while reading (s); a last commit follows at the end.
_COMMIT_INTERVAL_S = 5.0


class RecordFilter(NamedTuple):
    """The records to print."""

    # End the command after this number of records; None: no limit.
    records_max: int | None = None
    # Expressions that the key or value must contain; null never matches.
    key: re.Pattern[bytes] | None = None
    value: re.Pattern[bytes] | None = None

    def matching(self, records: Sequence[CompiledRecord]) -> Sequence[CompiledRecord]:
        """Return the records that match the expressions."""
        if self.key is not None:
            search = self.key.search
            records = [r for r in records if r.key is not None and search(r.key)]
        if self.value is not None:
            search = self.value.search
            records = [r for r in records if r.value is not None and search(r.value)]
        return records


class Printer:
    """Prints the records of a source on standard output.

    Args:
        source: The source of the records.
        render_of: Creates the renderer of a partition.
        wanted: The records to print.
        progress: Counts the printed records.
        errors: The policy for records that cannot be deserialized.
        waiting: Notice for the user if no record arrives at first; None: no notice.
    """

    def __init__(
        self,
        source: Source,
        render_of: Callable[[TopicPartition], Render],
        wanted: RecordFilter,
        progress: Progress,
        errors: ErrorPolicy,
        waiting: str | None = None,
    ) -> None:
        self._source = source
        self._render_of = render_of
        self._renders: dict[TopicPartition, Render] = {}
        self._wanted = wanted
        self._progress = progress
        self._errors = errors
        # Printed once, after `_SILENT_POLLS` polls without a record.
        self._waiting = waiting
        self._is_quiet = waiting is None
        # The last reason that was printed.
        self._obstacle: str | None = None
        self._output = sys.stdout.buffer
        # On a terminal, controls such as escape sequences are escaped. Programs get raw bytes.
        self._is_terminal = sys.stdout.isatty()
        self._interrupt = DeferredInterrupt(lambda: None)
        self._remaining = wanted.records_max
        # Partition -> next offset, for printed records that are not committed yet.
        self._printed: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()
        self._silent_polls = 0
        self._empty_polls = 0
        # Whether the user was warned that the broker does not answer.
        self._warned = False

    def run(self) -> None:
        """Print until the source is finished or the limit of records is reached."""
        try:
            while self._remaining != 0 and not self._source.is_finished:
                chunks = self._source.poll(_POLL_MS)
                if chunks:
                    self._waiting = None
                    self._empty_polls = 0
                    if self._warned:
                        self._check_broker()
                else:
                    check_reader(self._output.fileno())
                    self._check_broker()
                    self._tell_of_waiting()
                self._print_all(chunks)
                self._maybe_commit()
        finally:
            self._output.flush()
            self.commit()
            self._errors.warn_of_total()

    def commit(self) -> None:
        """Commit the offsets of printed records."""
        self._committed_at = time.monotonic()
        self._source.commit(self._printed)
        self._printed = {}

    def _maybe_commit(self) -> None:
        """Commit if the interval has passed; ignore retriable errors until the next commit."""
        if time.monotonic() - self._committed_at < _COMMIT_INTERVAL_S:
            return
        try:
            self.commit()
        except ClientError as error:
            if not error.retriable:
                raise

    def _print_all(self, chunks: Sequence[Chunk]) -> None:
        """Print the records and note their offsets. Ctrl-C does not interrupt between the two.

        A second Ctrl-C also ends a write that blocks on its reader.
        """
        self._interrupt.defer()
        try:
            for chunk in chunks:
                self._print(chunk)
                if self._remaining == 0:
                    break
            self._output.flush()
        finally:
            self._interrupt.release()

    def _print(self, chunk: Chunk) -> None:
        records = self._wanted.matching(chunk.records)
        next_offset = None
        if records:
            text, count, next_offset = self._rendered(chunk.partition, records)
            if self._remaining is not None:
                self._remaining -= count
            if self._is_terminal:
                text = printable_bytes(text)
            self._output.write(text)
            self._progress.advance(count, len(text))
        self._printed[chunk.partition] = chunk.next_offset if next_offset is None else next_offset

    def _rendered(
        self, partition: TopicPartition, records: Sequence[CompiledRecord]
    ) -> tuple[bytes, int, int | None]:
        """Return the text, its number of records, and the next offset if the limit was reached."""
        render = self._renders.get(partition)
        if render is None:
            render = self._renders[partition] = self._render_of(partition)
        limit = self._remaining
        is_last = limit is not None and len(records) >= limit
        shown = records[:limit] if is_last else records
        try:
            text = render(shown)
        except RecordDeserializationError:
            if not self._errors.skip:
                raise
            return self._errors.render(render, records, limit)
        return text, len(shown), shown[-1].offset + 1 if is_last else None

    def _tell_of_waiting(self) -> None:
        """Print what the command waits for: something that is missing, or new records."""
        self._empty_polls += 1
        is_due = self._empty_polls == _SILENT_POLLS or self._empty_polls % _REPEATED_POLLS == 0
        if self._is_quiet or self._warned or not is_due:
            return
        obstacle = self._source.obstacle
        if obstacle is not None and obstacle != self._obstacle:
            warning(obstacle)
        elif obstacle is None and self._waiting is not None:
            echo(self._waiting, err=True)
            self._waiting = None
        self._obstacle = obstacle

    def _check_broker(self) -> None:
        """Warn when the broker stops answering or answers again; a quiet topic looks the same."""
        trouble = self._source.trouble
        self._silent_polls = 0 if trouble is None else self._silent_polls + 1
        if trouble is not None and self._silent_polls == _SILENT_POLLS and not self._warned:
            self._warned = True
            warning(f"{trouble}; retrying until it answers (Ctrl-C ends)")
        elif trouble is None and self._warned:
            self._warned = False
            warning("the broker answers again")


def check_reader(descriptor: int) -> None:
    """Detect that the reader of the output has closed it, even if nothing is written.

    Raises:
        BrokenPipeError: The reader has closed the output.
    """
    if has_reader_ended(descriptor):
        raise BrokenPipeError


_TIMESTAMP_TYPES = {0: "create", 1: "log_append"}


def json_lines(reading: Reading) -> Callable[[TopicPartition], Render]:
    """Return a function that creates the renderer of a partition.

    Bytes that are not UTF-8 are in `key_base64` and `value_base64`.
    """

    def fields(record: CompiledRecord, tp: TopicPartition) -> dict[str, Any]:
        return {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": _TIMESTAMP_TYPES.get(record.timestamp_type, "none"),
            **_member(record, tp, "key", reading.key),
            **_member(record, tp, "value", reading.value),
            "headers": [[name, _header(value)] for name, value in record.headers],
        }

    return _lines(fields)


_KCAT_TIMESTAMP_TYPES = {0: "create", 1: "logappend"}


def kcat_lines(reading: Reading) -> Callable[[TopicPartition], Render]:
    """Return a function that creates the renderer of a partition, for the JSON of `kcat -J`.

    The field `broker` is missing, because the client does not tell which broker sent a record.
    Bytes that are not UTF-8 become U+FFFD; kcat prints invalid JSON then.
    """

    def fields(record: CompiledRecord, tp: TopicPartition) -> dict[str, Any]:
        headers = [each for name, value in record.headers for each in (name, _text(value))]
        return {
            "offset": record.offset,
            "tstype": _KCAT_TIMESTAMP_TYPES.get(record.timestamp_type, "unknown"),
            "ts": record.timestamp,
            **({"headers": headers} if headers else {}),
            "key": _text(field(record, tp, "key", reading.key)),
            "payload": _text(field(record, tp, "value", reading.value)),
        }

    return _lines(fields)


def _lines(
    fields: Callable[[CompiledRecord, TopicPartition], dict[str, Any]],
) -> Callable[[TopicPartition], Render]:
    """Return a function that creates the renderer of a partition, with a JSON object per record."""
    encode = msgspec.json.Encoder().encode_lines

    def of_partition(tp: TopicPartition) -> Render:
        place = {"topic": tp.topic, "partition": tp.partition}

        def render(records: Sequence[CompiledRecord]) -> bytes:
            return encode([{**place, **fields(record, tp)} for record in records])

        return render

    return of_partition


def _text(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _member(
    record: CompiledRecord, tp: TopicPartition, what: str, how: Format | None
) -> dict[str, Any]:
    value = field(record, tp, what, how)
    if not isinstance(value, bytes):
        return {what: value}
    try:
        return {what: value.decode()}
    except UnicodeDecodeError:
        return {f"{what}_base64": base64.b64encode(value).decode()}


def _header(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
