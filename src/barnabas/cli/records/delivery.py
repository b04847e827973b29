"""Convert input to records, send them, limited to a rate, and wait for their delivery.

Input is split at a delimiter as it arrives. Pieces are lines, JSON lines or whole files.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import sys
import time
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from barnabas.cli.common.printable import echo
from barnabas.client.errors import AdminResultsError, ClientError, UnknownTopicError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.cli.records.formats import Format, Progress
    from barnabas.client.facade import Client
    from barnabas.client.producer.producer import SharedProducer

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


_CHUNK_BYTES = 1 << 18
# Time without input after which the pieces read so far are flushed (s).
_IDLE_S = 0.05


class InputChunk(NamedTuple):
    """Pieces of input. An empty list means a pause in the input: flush the sent records."""

    pieces: list[bytes]
    # Number of bytes read for the pieces, including delimiters.
    size: int


def input_chunks(
    files: Sequence[IO[bytes]], delimiter: bytes, *, whole_files: bool
) -> Iterator[InputChunk]:
    """Yield all pieces of all files, in order.

    Args:
        files: Open files, which must have descriptors.
        delimiter: Ends each piece; optional after the last piece.
        whole_files: Whether every file is one piece, regardless of delimiters.
    """
    for file in files:
        if whole_files:
            content = file.read()
            yield InputChunk([content], len(content))
        else:
            yield from _of_file(file.fileno(), delimiter)


def _of_file(descriptor: int, delimiter: bytes) -> Iterator[InputChunk]:
    # Parts of the incomplete piece. They are joined once, even if they arrive slowly.
    parts: list[bytes] = []
    # Number of bytes read but not reported yet.
    size = 0
    # A delimiter may be split between two reads.
    overlap = len(delimiter) - 1
    sent_all = True
    while True:
        if not sent_all and not select.select([descriptor], [], [], _IDLE_S)[0]:
            sent_all = True
            yield InputChunk([], 0)
            continue
        data = os.read(descriptor, _CHUNK_BYTES)
        if not data:
            break
        size += len(data)
        if overlap and parts:
            last = parts.pop()
            parts.append(last[:-overlap])
            data = last[-overlap:] + data
        pieces = data.split(delimiter)
        parts.append(pieces[0])
        if len(pieces) > 1:
            pieces[0] = b"".join(parts)
            parts = [pieces.pop()]
            sent_all = False
            yield InputChunk(pieces, size)
            size = 0
    rest = b"".join(parts)
    if rest:
        yield InputChunk([rest], size)


class CreationNotice:
    """Checks whether the topic exists before the first record, and reports its creation."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        # Whether the topic was missing; None before the first record, False after the notice.
        self._was_missing: bool | None = None

    def before_send(self) -> None:
        """Check once whether the topic exists; a topic that the broker hides counts as existing.

        Raises:
            ClientError: No broker answered.
        """
        if self._was_missing is not None:
            return
        self._was_missing = False
        try:
            self._client.admin.describe_topics([self._topic])
        except AdminResultsError as error:
            found = error.results[self._topic]
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            is_missing = isinstance(found, UnknownTopicError) or found.error_code == code
            self._was_missing = is_missing

    def after_send(self) -> None:
        """Print on standard error, once, that the topic was created."""
        if self._was_missing:
            self._was_missing = False
            echo(f"created topic {self._topic}", err=True)


_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1
# Part of an invalid line that an error message shows.
_SHOWN_BYTES = 80

# Key, value, headers, and timestamp in ms or None.
Record = tuple[bytes | None, bytes | None, "Sequence[tuple[str, bytes | None]]", int | None]


class Options(NamedTuple):
    """The options for the conversion of input to records."""

    # Separator between key and value in a line.
    separator: bytes | None = None
    # Defaults for records that do not specify these themselves.
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int | None = None
    empty_is_null: bool = False
    from_json: bool = False
    key_format: Format | None = None
    value_format: Format | None = None


class Run(NamedTuple):
    """Records for one partition; None: the partitioner chooses by key."""

    partition: int | None
    records: list[Record]


def runs(lines: Sequence[bytes], options: Options, first: int = 1) -> Iterator[Run]:
    """Yield the records of some lines, in order. Records before an invalid line are yielded first.

    Args:
        lines: Lines of the input, without their delimiters.
        options: The conversion to records.
        first: Number of the first line, for error messages.

    Raises:
        ValueError: A line cannot be converted; the message shows the number and the line.
    """
    if not options.from_json:
        yield from _plain_runs(lines, options, first)
        return
    run = Run(None, [])
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            record, partition = json_record(line, options)
        except ValueError as error:
            yield run
            raise _at_line(number, error, line) from None
        if partition != run.partition and run.records:
            yield run
            run = Run(partition, [])
        run = run if partition == run.partition else Run(partition, run.records)
        run.records.append(record)
    yield run


def _at_line(number: int, error: ValueError, line: bytes) -> ValueError:
    shown = line[:_SHOWN_BYTES].decode(errors="replace") + "…" * (len(line) > _SHOWN_BYTES)
    return ValueError(f"line {number}: {error}: {shown}")


def _plain_runs(lines: Sequence[bytes], options: Options, first: int) -> Iterator[Run]:
    headers, timestamp, partition = options.headers, options.timestamp, options.partition
    plain = options.separator is None and options.value_format is None
    if plain and not options.empty_is_null:
        yield Run(partition, [(options.key, line, headers, timestamp) for line in lines])
        return
    records: list[Record] = []
    for number, line in enumerate(lines, first):
        try:
            key, value = _key_and_value(line, options)
        except ValueError as error:
            yield Run(partition, records)
            raise _at_line(number, error, line) from None
        records.append((key, value, headers, timestamp))
    yield Run(partition, records)


def _key_and_value(line: bytes, options: Options) -> tuple[bytes | None, bytes | None]:
    key, value = options.key, line
    if options.separator is not None:
        before, found, after = line.partition(options.separator)
        if found:
            key, value = before, after
            if options.key_format is not None and (key or not options.empty_is_null):
                key = _written(key, options.key_format, "key")
    if options.empty_is_null and not value:
        return key or None, None
    if options.value_format is not None:
        return key, _written(value, options.value_format, "value")
    return (key or None if options.empty_is_null else key), value


def _written(data: bytes, how: Format, what: str) -> bytes | None:
    try:
        return how.write(data.decode())
    except (TypeError, ValueError) as error:
        raise ValueError(f"the {what} cannot be encoded: {error}") from None


# JSON lines


def json_record(line: bytes, options: Options) -> tuple[Record, int | None]:
    """Return the record of a JSON line, and its partition.

    Raises:
        ValueError: The line is invalid; the message shows the reason.
    """
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not a JSON line ({error})") from None
    if isinstance(fields, dict) and "payload" in fields and "value" not in fields:
        fields = _from_kcat(fields)
    if not isinstance(fields, dict) or not ("value" in fields or "value_base64" in fields):
        raise ValueError('a JSON line is an object with "value"')
    try:
        headers = [*options.headers, *_json_headers(fields.get("headers"))]
        key = _json_member(fields, "key", options.key_format)
        value = _json_member(fields, "value", options.value_format)
        timestamp = _json_number(fields, "timestamp", _INT64_MAX)
        partition = _json_number(fields, "partition", _INT32_MAX)
    except TypeError as error:
        raise ValueError(str(error)) from None
    record = (
        options.key if key is None else key,
        value,
        headers,
        options.timestamp if timestamp is None else timestamp,
    )
    return record, partition if options.partition is None else options.partition


def _from_kcat(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a line of `kcat -J` under the names of our lines."""
    flat = fields.get("headers") or []
    if not isinstance(flat, list) or len(flat) % 2:
        raise ValueError('"headers" is not a list of names and values')
    return {
        **fields,
        "value": fields["payload"],
        "timestamp": fields.get("ts"),
        "headers": list(zip(flat[::2], flat[1::2], strict=True)),
    }


def _json_headers(given: Any) -> list[tuple[str, bytes | None]]:
    """Return headers from an object, or from a list of pairs, which may repeat a name."""
    pairs = list(given.items()) if isinstance(given, dict) else given or []
    if not isinstance(pairs, list) or any(
        not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs
    ):
        raise ValueError('"headers" is neither an object nor a list of [name, value]')
    return [(str(name), _json_value(value)) for name, value in pairs]


def _json_number(fields: dict[str, Any], name: str, most: int) -> int | None:
    number = fields.get(name)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= most:
        raise ValueError(f'"{name}" is not an integer from 0 to {most}')
    return number


def _json_member(fields: dict[str, Any], name: str, how: Format | None) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        return _decoded(encoded)
    value = fields.get(name)
    if how is None:
        return _json_value(value)
    return None if value is None else how.write(value)


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise ValueError(f"{text!r} is not base64") from None


def _json_value(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["base64"]:
        return _decoded(value["base64"])
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
