"""Results of a search as a file: JSON lines, CSV or Parquet, written while the search runs.

A download has whole values, which a list cuts. It is bounded in messages, bytes and time; a file
that ends early says so at its end.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import csv
import heapq
import re
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.cli.common.printable import json_line
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.forms import FormError
from barnabas.console.search.columns import PLAIN, Column
from barnabas.console.search.expressions import ExpressionError, FilterTooSlowError
from barnabas.console.search.zones import UTC_ZONE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from barnabas.console.messages.decoded import Decoded
    from barnabas.console.messages.record_view import DecodedRecord
    from barnabas.console.search.jobs import Search
    from barnabas.console.search.ranges import Plan, Ranges
    from barnabas.console.search.scan import Scan
    from barnabas.console.search.zones import Zone
    from barnabas.runtime.clock import Clock

# Columns of a file when the address names none.
_DEFAULT = ("partition", "offset", "time", "timestamp", "size", "key", "value", "headers")
# A spreadsheet takes a cell that begins with one of these characters as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
_MS_PER_S = 1000
# Bytes of the newest messages that are read at once.
_GROUP_BYTES = 4 * 1024 * 1024
_ROW_GROUP = 5000
_ROW_GROUP_BYTES = 4 * 1024 * 1024
# A cell of Parquet is in memory as a whole, several times.
_CELL_BYTES_MAX = 4 * 1024 * 1024
# Lines are joined until they have so many characters.
_PIECE_CHARACTERS = 256 * 1024


class DownloadLimits(NamedTuple):
    """The limits at which a download ends early."""

    messages: int = 100_000
    size: int = 256 * 1024 * 1024
    seconds: float = 600.0


class Download:
    """One download.

    Args:
        search: What is searched.
        writer: Writes the file.
        clock: Measures the time.
        limits: Where the download ends early.
    """

    def __init__(
        self, search: Search, writer: Writer, clock: Clock, limits: DownloadLimits
    ) -> None:
        self._search = search
        self._writer = writer
        self._clock = clock
        self._limits = limits
        # Messages that are still allowed.
        self._left = search.limit if search.place.is_newest else limits.messages
        self._size = 0
        # Why messages are missing.
        self._truncated = ""
        # When the time limit is reached (ms, monotonic clock).
        self._ends_ms = 0.0

    async def parts(self, plan: Plan, scan: Scan) -> AsyncGenerator[bytes]:
        """Yield the bytes of the file.

        Args:
            plan: The offsets that are examined.
            scan: Reads them.
        """
        self._ends_ms = self._clock.monotonic_ms() + self._limits.seconds * _MS_PER_S
        step = self._newest_step if self._search.place.is_newest else self._step
        try:
            while not self._has_ended and plan.begin_step():
                async with contextlib.aclosing(step(plan, scan)) as pieces:
                    async for piece in pieces:
                        yield piece
        except _ENDS as error:
            self._truncated = str(error) or type(error).__name__
        async for piece in _made(self._writer.end(self._truncated)):
            yield piece

    @property
    def _has_ended(self) -> bool:
        return bool(self._truncated) or (self._search.place.is_newest and self._left <= 0)

    async def _found(self, ranges: Ranges, scan: Scan) -> AsyncGenerator[list[DecodedRecord]]:
        """Yield the records of ranges until the file ends."""
        async with contextlib.aclosing(scan.read(ranges)) as parts:
            async for found in parts:
                if self._clock.monotonic_ms() > self._ends_ms:
                    self._truncated = f"the limit is {self._limits.seconds:g} s"
                elif found:
                    yield found
                if self._has_ended:
                    return

    async def _step(self, plan: Plan, scan: Scan) -> AsyncGenerator[bytes]:
        """Write the records of a step in the order in which they are found."""
        async with contextlib.aclosing(self._found(plan.step, scan)) as parts:
            async for found in parts:
                async for piece in self._written(found):
                    yield piece
        plan.advance(scan.left)

    async def _newest_step(self, plan: Plan, scan: Scan) -> AsyncGenerator[bytes]:
        """Write the newest records of a step, the newest first.

        They are known at its end. Until then only their places are kept; then they are read again,
        as many at once as fit in the memory.
        """
        newest: list[_Place] = []
        async with contextlib.aclosing(self._found(plan.step, scan)) as parts:
            async for found in parts:
                newest = heapq.nlargest(self._left, newest + [_place(each) for each in found])
                found.clear()
        plan.advance(scan.left)
        for group in _groups(newest):
            wanted = set(group)
            read: list[DecodedRecord] = []
            async with contextlib.aclosing(
                self._found(_ranges(self._search, group), scan)
            ) as parts:
                async for found in parts:
                    read += (each for each in found if _place(each) in wanted)
                    found.clear()
            async for piece in self._written(sorted(read, key=_place, reverse=True)):
                yield piece

    async def _written(self, records: list[DecodedRecord]) -> AsyncGenerator[bytes]:
        """Write records, and forget them."""
        if len(records) > self._left:
            self._truncated = f"the limit is {self._limits.messages} messages"
            del records[self._left :]
        self._left -= len(records)
        self._size += sum(record.size for record in records)
        if self._size > self._limits.size:
            self._truncated = f"the limit is {self._limits.size} bytes"
        async for piece in _made(self._writer.write(records)):
            yield piece
        records.clear()


async def _made(pieces: Iterator[bytes]) -> AsyncGenerator[bytes]:
    """Make pieces of a file in a thread, and yield them."""
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        if piece:
            yield piece


class _Place(NamedTuple):
    """Where a record is; places have the order of a list of the newest messages."""

    timestamp: int
    partition: int
    offset: int
    size: int


def _place(record: DecodedRecord) -> _Place:
    return _Place(record.timestamp, record.partition, record.offset, record.size)


def _groups(places: Sequence[_Place]) -> Iterator[list[_Place]]:
    """Yield places whose records are read at once."""
    group: list[_Place] = []
    size = 0
    for place in places:
        if group and size + place.size > _GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(place)
        size += place.size
    if group:
        yield group


def _ranges(search: Search, places: Sequence[_Place]) -> Ranges:
    """Return the ranges of offsets that have these places."""
    ranges: Ranges = {}
    for place in places:
        tp = TopicPartition(search.topic, place.partition)
        first, end = ranges.get(tp, (place.offset, 0))
        ranges[tp] = (min(first, place.offset), max(end, place.offset + 1))
    return ranges


class Writer(Protocol):
    """Writes messages in one format. Its methods yield bytes of the file, in order."""

    # The media type and the suffix of the file.
    media_type: str
    suffix: str

    def write(self, records: Sequence[DecodedRecord]) -> Iterator[bytes]:
        """Write messages."""
        ...

    def end(self, truncated: str) -> Iterator[bytes]:
        """End the file.

        Args:
            truncated: Why messages are missing; "" if none are.
        """
        ...


def make_writer(name: str, columns: Sequence[Column], zone: Zone) -> Writer:
    """Return the writer of a format.

    Args:
        name: "jsonl", "csv" or "parquet".
        columns: The columns that the address names; empty for all parts of a message.
        zone: The zone of times.

    Raises:
        FormError: There is no such format, or a package is missing.
    """
    chosen = columns or [Column(each, each) for each in _DEFAULT]
    match name:
        case "jsonl":
            return JsonLines(chosen, zone)
        case "csv":
            return Csv(chosen, zone)
        case "parquet":
            try:
                return Parquet(chosen)
            except ImportError as error:
                raise FormError(
                    f"the package {error.name} is missing: install Barnabas with its extra `arrow`"
                ) from None
        case _:
            raise FormError(f"format must be jsonl, csv or parquet, not {name!r}")


class JsonLines:
    """One JSON object for each message.

    A key, a value or a header is JSON if it was decoded as JSON, else text. Bytes that are not
    text are an object with a member `base64`.
    """

    media_type = "application/x-ndjson"
    suffix = "jsonl"

    def __init__(self, columns: Sequence[Column], zone: Zone) -> None:
        self._columns = columns
        self._zone = zone

    def write(self, records: Sequence[DecodedRecord]) -> Iterator[bytes]:
        """Write messages."""
        return _joined(each for record in records for each in self._line(record))

    def _line(self, record: DecodedRecord) -> Iterator[str]:
        """Yield the pieces of a line."""
        before = "{"
        for column in self._columns:
            yield f"{before}{json_line(column.name)}: "
            yield from self._pieces(record, column)
            before = ", "
        yield "}\n"

    def _pieces(self, record: DecodedRecord, column: Column) -> Iterator[str]:
        if column.path:
            yield json_line(column.exported(record))
        elif column.root in ("key", "value"):
            yield from _json_pieces(record.key if column.root == "key" else record.value)
        elif column.root == "headers":
            before = "["
            for name, value in record.headers:
                yield f"{before}[{json_line(name)}, "
                yield from _json_pieces(value)
                yield "]"
                before = ", "
            yield "]" if record.headers else "[]"
        else:
            yield json_line(_plain(record, column.root, self._zone))

    def end(self, truncated: str) -> Iterator[bytes]:
        """End the file."""
        if truncated:
            yield f"{json_line({'truncated': truncated})}\n".encode()


class Csv:
    """Comma-separated values with a header; spreadsheets take no cell as a formula."""

    media_type = "text/csv"
    suffix = "csv"

    def __init__(self, columns: Sequence[Column], zone: Zone) -> None:
        self._columns = columns
        self._zone = zone
        self._lines = _Lines()
        self._writer = csv.writer(self._lines)
        self._writer.writerow([harmless(column.name) for column in columns])

    def write(self, records: Sequence[DecodedRecord]) -> Iterator[bytes]:
        """Write messages."""
        return _joined(each for record in records for each in self._line(record))

    def _line(self, record: DecodedRecord) -> Iterator[str]:
        """Yield the pieces of a line."""
        if not _large_parts(record, self._columns):
            self._writer.writerow(
                [harmless(_text(record, each, self._zone)) for each in self._columns]
            )
            yield self._lines.take()
            return
        before = self._lines.take()
        for column in self._columns:
            yield before
            yield from self._pieces(record, column)
            before = ","
        yield "\r\n"

    def _pieces(self, record: DecodedRecord, column: Column) -> Iterator[str]:
        """Yield the pieces of a cell of a line with a large key or value."""
        if column.root == "headers" and not column.path:
            yield '"'
            for piece in _header_pieces(record):
                yield piece.replace('"', '""')
            yield '"'
            return
        part = _part_of(record, column)
        if part is None or not part.is_large:
            self._writer.writerow([harmless(_text(record, column, self._zone))])
            yield self._lines.take().removesuffix("\r\n")
            return
        yield '"'
        pieces = part.base64_pieces() if part.kind == "bytes" else part.pieces()
        for number, piece in enumerate(pieces):
            # A text of so many characters is no number.
            escaped = piece.replace('"', '""')
            yield f"'{escaped}" if not number and piece.startswith(_FORMULA) else escaped
        yield '"'

    def end(self, truncated: str) -> Iterator[bytes]:
        """End the file."""
        if truncated:
            self._writer.writerow([f"truncated: {truncated}"])
        yield self._lines.take().encode("utf-8", "replace")


class _Lines:
    """The lines of a CSV file that were not taken away yet."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        self._lines.append(line)

    def take(self) -> str:
        """Return the lines that were written since the last call."""
        found = "".join(self._lines)
        self._lines.clear()
        return found


class TooLargeForParquetError(ValueError):
    """A message does not fit into a Parquet file; the text says what to do."""


# Errors that end a file early, which then says why.
_ENDS = (
    ClientError, ExpressionError, FilterTooSlowError, TimeoutError, TooLargeForParquetError
)  # fmt: skip


class Parquet:
    """An Apache Parquet file: numbers, a timestamp, and texts."""

    media_type = "application/vnd.apache.parquet"
    suffix = "parquet"

    def __init__(self, columns: Sequence[Column]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.int64(),
            "size": pa.int64(),
            "time": pa.timestamp("ms", tz="UTC"),
        }
        self._columns = columns
        self._schema = pa.schema(
            [(each.name, pa.string() if each.path else kinds.get(each.root, pa.string()))
             for each in columns]
        )  # fmt: skip
        self._make_batch = pa.RecordBatch.from_pydict
        self._sink = _Sink()
        self._writer = pq.ParquetWriter(self._sink, self._schema)
        # Messages of the row group that is not written yet, and their bytes.
        self._rows: list[list[Any]] = []
        self._size = 0

    def write(self, records: Sequence[DecodedRecord]) -> Iterator[bytes]:
        """Write messages.

        Raises:
            TooLargeForParquetError: A part of a message is too large for a cell.
        """
        for record in records:
            parts = (record.key, record.value, *(each for _, each in record.headers))
            largest = max(each.size for each in parts)
            if largest > _CELL_BYTES_MAX:
                raise TooLargeForParquetError(
                    f"the message at {record.partition}:{record.offset} has {largest} bytes in one "
                    f"part, and a cell of Parquet at most {_CELL_BYTES_MAX}: choose JSON lines "
                    f"or CSV"
                )
            self._rows.append([self._cell(record, each) for each in self._columns])
            self._size += record.size
            if len(self._rows) >= _ROW_GROUP or self._size >= _ROW_GROUP_BYTES:
                self._write_group()
                yield self._sink.take()

    def _cell(self, record: DecodedRecord, column: Column) -> Any:
        if column.root == "time":
            return record.timestamp if record.timestamp >= 0 else None
        if not column.path and column.root not in ("key", "value", "headers"):
            return _plain(record, column.root, UTC_ZONE)
        return _text(record, column, UTC_ZONE)

    def _write_group(self) -> None:
        if self._rows:
            values = dict(zip(self._schema.names, zip(*self._rows, strict=True), strict=True))
            self._writer.write_batch(self._make_batch(values, schema=self._schema))
        self._rows, self._size = [], 0

    def end(self, truncated: str) -> Iterator[bytes]:
        """End the file."""
        self._write_group()
        if truncated:
            self._writer.add_key_value_metadata({"truncated": truncated})
        self._writer.close()
        yield self._sink.take()


class _Sink(BytesIO):
    """A file whose written bytes are taken away, while its position goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._position = 0

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._position += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._position

    def take(self) -> bytes:
        """Return the bytes that were written since the last call."""
        found = b"".join(self._parts)
        self._parts.clear()
        return found


def harmless(cell: Any) -> Any:
    """Return a cell so that no spreadsheet takes its text as a formula."""
    if isinstance(cell, str) and cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def _plain(record: DecodedRecord, name: str, zone: Zone) -> Any:
    """Return a part of a message that every message has."""
    match name:
        case "time":
            return zone.text(record.timestamp) if record.timestamp >= 0 else None
        case "partition" | "offset" | "timestamp" | "size":
            return getattr(record, name)
        case _:
            raise AssertionError(f"{name} is not one of {PLAIN}")


def _joined(pieces: Iterator[str]) -> Iterator[bytes]:
    """Join pieces of text to larger ones, in UTF-8."""
    waiting: list[str] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= _PIECE_CHARACTERS:
            yield "".join(waiting).encode("utf-8", "replace")
            waiting.clear()
            size = 0
    yield "".join(waiting).encode("utf-8", "replace")


def _part_of(record: DecodedRecord, column: Column) -> Decoded | None:
    """Return the key or the value if a column shows it as a whole."""
    if column.path or column.root not in ("key", "value"):
        return None
    return record.key if column.root == "key" else record.value


def _large_parts(record: DecodedRecord, columns: Sequence[Column]) -> bool:
    """Return whether a column shows a large key or value, or a large header."""
    parts = [_part_of(record, each) for each in columns]
    if any(each.root == "headers" and not each.path for each in columns):
        parts += [value for _, value in record.headers]
    return any(part is not None and part.is_large for part in parts)


def _json_pieces(part: Decoded) -> Iterator[str]:
    """Yield the pieces of a key, value or header as JSON."""
    if not part.is_large:
        yield json_line(_json_value(part))
    elif part.kind == "bytes":
        yield '{"base64": "'
        yield from part.base64_pieces()
        yield '"}'
    else:
        yield '"'
        for piece in part.pieces():
            yield json_line(piece)[1:-1]
        yield '"'


def _header_pieces(record: DecodedRecord) -> Iterator[str]:
    """Yield the pieces of the cell of all headers: JSON with texts."""
    before = "["
    for name, value in record.headers:
        yield f"{before}[{json_line(name)}, "
        if value.is_large:
            yield '"'
            pieces = value.base64_pieces() if value.kind == "bytes" else value.pieces()
            yield from (json_line(piece)[1:-1] for piece in pieces)
            yield '"'
        else:
            yield json_line(_part_text(value))
        yield "]"
        before = ", "
    yield "]" if record.headers else "[]"


def _json_value(part: Decoded) -> Any:
    content = part.content
    if isinstance(content, bytes):
        return {"base64": base64.b64encode(content).decode()}
    return content


def _text(record: DecodedRecord, column: Column, zone: Zone) -> Any:
    """Return a cell as text; None for null and for a missing member."""
    if column.path:
        content = column.exported(record)
        if content is None or isinstance(content, str):
            return content
        return json_line(content)
    match column.root:
        case "key" | "value":
            return _part_text(record.key if column.root == "key" else record.value)
        case "headers":
            return "".join(_header_pieces(record))
        case _:
            return _plain(record, column.root, zone)


def _part_text(part: Decoded) -> str | None:
    if part.kind == "null":
        return None
    return "".join(part.base64_pieces()) if part.kind == "bytes" else part.text
