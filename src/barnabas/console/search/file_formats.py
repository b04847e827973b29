"""The formats of downloads: JSON lines, CSV and Parquet, written in pieces.

A value of 50 MB is never a text as a whole: JSON lines and CSV have its pieces. A cell of Parquet
is in memory as a whole, so that its size is limited.
"""

from __future__ import annotations

import base64
import csv
import re
from io import BytesIO
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.cli.common.printable import json_line
from barnabas.console.forms import FormError
from barnabas.console.messages.one_record import Fate
from barnabas.console.search.columns import PLAIN, Column
from barnabas.console.search.zones import UTC_ZONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.console.messages.decoded import Decoded
    from barnabas.console.messages.record_view import DecodedRecord
    from barnabas.console.search.zones import Zone

# Columns of a file when the address names none.
_DEFAULT = (
    "partition", "offset", "time", "timestamp", "size", "key", "value", "headers", "transaction"
)  # fmt: skip
# A spreadsheet takes a cell that begins with one of these characters as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
# A row group of Parquet is written when it has so many messages, or bytes of them.
_ROW_GROUP = 5000
_ROW_GROUP_BYTES = 2 * 1024 * 1024
# A cell of Parquet is in memory as a whole, several times.
_CELL_BYTES_MAX = 4 * 1024 * 1024
# Parts of a message that are seldom equal to those of another one.
_LARGE_ROOTS = ("value", "headers")
# Lines are joined until they have so many characters.
_PIECE_CHARACTERS = 256 * 1024


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
        part = _part_of(record, column)
        if column.path:
            yield json_line(column.exported(record))
        elif part is not None:
            yield from _json_pieces(part)
        elif column.root == "headers":
            yield from _header_pieces(record, _json_pieces)
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
            for piece in _header_pieces(record, _json_text_pieces):
                yield piece.replace('"', '""')
            yield '"'
            return
        part = _part_of(record, column)
        if part is None or not part.is_large:
            self._writer.writerow([harmless(_text(record, column, self._zone))])
            yield self._lines.take().removesuffix("\r\n")
            return
        yield '"'
        for number, piece in enumerate(_text_pieces(part)):
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


class Parquet:
    """An Apache Parquet file: numbers, a timestamp, and texts."""

    media_type = "application/vnd.apache.parquet"
    suffix = "parquet"

    def __init__(self, columns: Sequence[Column]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        # Arrow's own allocator keeps what is freed.
        pa.set_memory_pool(pa.system_memory_pool())
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
        # The statistics of a text would be the text itself, twice.
        numbers = [each.name for each in self._schema if each.type != pa.string()]
        # A dictionary of large values would be a copy of them.
        repeated = [
            column.name for column in columns if column.path or column.root not in _LARGE_ROOTS
        ]
        self._writer = pq.ParquetWriter(
            self._sink, self._schema, write_statistics=numbers, use_dictionary=repeated
        )
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
                yield from self._sink.take()

    def _cell(self, record: DecodedRecord, column: Column) -> Any:
        if column.root == "time":
            return record.timestamp if record.timestamp >= 0 else None
        if not column.path and column.root not in ("key", "value", "headers"):
            return _plain(record, column.root, UTC_ZONE)
        return _text(record, column, UTC_ZONE)

    def _write_group(self) -> None:
        if self._rows:
            self._writer.write_batch(self._taken_batch())

    def _taken_batch(self) -> Any:
        """Return the rows as a batch, and forget them: the batch is a copy."""
        values = dict(zip(self._schema.names, zip(*self._rows, strict=True), strict=True))
        self._rows, self._size = [], 0
        return self._make_batch(values, schema=self._schema)

    def end(self, truncated: str) -> Iterator[bytes]:
        """End the file."""
        self._write_group()
        if truncated:
            self._writer.add_key_value_metadata({"truncated": truncated})
        self._writer.close()
        yield from self._sink.take()


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

    def take(self) -> Iterator[bytes]:
        """Yield what was written since the last call, and forget it."""
        self._parts.reverse()
        while self._parts:
            yield self._parts.pop()


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
        case "transaction":
            return None if record.fate is Fate.NONE else record.fate.value
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


def _header_pieces(
    record: DecodedRecord, pieces: Callable[[Decoded], Iterator[str]]
) -> Iterator[str]:
    """Yield the pieces of all headers as JSON; `pieces` yields those of a value."""
    before = "["
    for name, value in record.headers:
        yield f"{before}[{json_line(name)}, "
        yield from pieces(value)
        yield "]"
        before = ", "
    yield "]" if record.headers else "[]"


def _json_pieces(part: Decoded) -> Iterator[str]:
    """Yield the pieces of a key, value or header as JSON; bytes are an object."""
    if not part.is_large:
        yield json_line(_json_value(part))
    elif part.kind == "bytes":
        yield '{"base64": '
        yield from _json_text_pieces(part)
        yield "}"
    else:
        yield from _json_text_pieces(part)


def _json_text_pieces(part: Decoded) -> Iterator[str]:
    """Yield the pieces of the text of a key, value or header as a string of JSON."""
    if not part.is_large:
        yield json_line(_part_text(part))
        return
    yield '"'
    yield from (json_line(piece)[1:-1] for piece in _text_pieces(part))
    yield '"'


def _text_pieces(part: Decoded) -> Iterator[str]:
    """Yield the pieces of a large text; bytes are base64."""
    return part.base64_pieces() if part.kind == "bytes" else part.pieces()


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
    part = _part_of(record, column)
    if part is not None:
        return _part_text(part)
    if column.root == "headers":
        return "".join(_header_pieces(record, _json_text_pieces))
    return _plain(record, column.root, zone)


def _part_text(part: Decoded) -> str | None:
    if part.kind == "null":
        return None
    return "".join(part.base64_pieces()) if part.kind == "bytes" else part.text
