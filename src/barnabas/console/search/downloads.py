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
from barnabas.console.forms import FormError
from barnabas.console.messages.one_record import Fate
from barnabas.console.search.columns import PLAIN, Column
from barnabas.console.search.expressions import ExpressionError, FilterTooSlowError
from barnabas.console.search.zones import UTC_ZONE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from barnabas.console.messages.decoded import Decoded
    from barnabas.console.messages.record_view import DecodedRecord
    from barnabas.console.search.jobs import Search
    from barnabas.console.search.ranges import Plan
    from barnabas.console.search.scan import Scan
    from barnabas.console.search.zones import Zone
    from barnabas.runtime.clock import Clock

# Columns of a file when the address names none.
_DEFAULT = (
    "partition", "offset", "time", "timestamp", "size", "key", "value", "headers", "transaction"
)  # fmt: skip
# A spreadsheet takes a cell that begins with one of these characters as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
_MS_PER_S = 1000
# Bytes of the newest messages, which are kept until the end of a step.
_NEWEST_BYTES = 64 * 1024 * 1024
_ROW_GROUP = 5000
_ROW_GROUP_BYTES = 32 * 1024 * 1024


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

    async def parts(self, plan: Plan, scan: Scan) -> AsyncGenerator[bytes]:
        """Yield the bytes of the file.

        Args:
            plan: The offsets that are examined.
            scan: Reads them.
        """
        ends_ms = self._clock.monotonic_ms() + self._limits.seconds * _MS_PER_S
        try:
            while not self._has_ended and plan.begin_step():
                # The newest messages of a step are known at its end.
                newest: list[DecodedRecord] = []
                async with contextlib.aclosing(scan.read(plan.step)) as parts:
                    async for found in parts:
                        if self._clock.monotonic_ms() > ends_ms:
                            self._truncated = f"the limit is {self._limits.seconds:g} s"
                            break
                        if self._search.place.is_newest:
                            newest = self._newest_of(newest + found)
                        elif found:
                            yield await self._write(found)
                        if self._has_ended:
                            break
                plan.advance(scan.left)
                if newest:
                    yield await self._write(newest)
        except (ClientError, ExpressionError, FilterTooSlowError, TimeoutError) as error:
            self._truncated = str(error) or type(error).__name__
        yield await asyncio.to_thread(self._writer.end, self._truncated)

    @property
    def _has_ended(self) -> bool:
        return bool(self._truncated) or (self._search.place.is_newest and self._left <= 0)

    def _newest_of(self, records: list[DecodedRecord]) -> list[DecodedRecord]:
        """Return the newest records, as many as are still allowed."""
        kept = heapq.nlargest(self._left, records, key=_place)
        size = 0
        for place, record in enumerate(kept):
            size += record.size
            if size > _NEWEST_BYTES:
                self._truncated = f"the newest messages have more than {_NEWEST_BYTES} bytes"
                return kept[:place]
        return kept

    async def _write(self, records: list[DecodedRecord]) -> bytes:
        if len(records) > self._left:
            self._truncated = f"the limit is {self._limits.messages} messages"
        records = records[: self._left]
        self._left -= len(records)
        self._size += sum(record.size for record in records)
        if self._size > self._limits.size:
            self._truncated = f"the limit is {self._limits.size} bytes"
        return await asyncio.to_thread(self._writer.write, records)


def _place(record: DecodedRecord) -> tuple[int, int, int]:
    return record.timestamp, record.partition, record.offset


class Writer(Protocol):
    """Writes messages in one format. Its methods return bytes of the file, in order."""

    # The media type and the suffix of the file.
    media_type: str
    suffix: str

    def write(self, records: Sequence[DecodedRecord]) -> bytes:
        """Write messages."""
        ...

    def end(self, truncated: str) -> bytes:
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

    def write(self, records: Sequence[DecodedRecord]) -> bytes:
        """Write messages."""
        lines = (
            json_line({each.name: self._value(record, each) for each in self._columns})
            for record in records
        )
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")

    def _value(self, record: DecodedRecord, column: Column) -> Any:
        if column.path:
            return column.exported(record)
        match column.root:
            case "key" | "value":
                return _json_value(record.key if column.root == "key" else record.value)
            case "headers":
                return [[name, _json_value(value)] for name, value in record.headers]
            case _:
                return _plain(record, column.root, self._zone)

    def end(self, truncated: str) -> bytes:
        """End the file."""
        return f"{json_line({'truncated': truncated})}\n".encode() if truncated else b""


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

    def write(self, records: Sequence[DecodedRecord]) -> bytes:
        """Write messages."""
        for record in records:
            self._writer.writerow(
                [harmless(_text(record, each, self._zone)) for each in self._columns]
            )
        return self._lines.take()

    def end(self, truncated: str) -> bytes:
        """End the file."""
        if truncated:
            self._writer.writerow([f"truncated: {truncated}"])
        return self._lines.take()


class _Lines:
    """The lines of a CSV file that were not taken away yet."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        self._lines.append(line)

    def take(self) -> bytes:
        """Return the lines that were written since the last call."""
        found = "".join(self._lines).encode("utf-8", "replace")
        self._lines.clear()
        return found


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

    def write(self, records: Sequence[DecodedRecord]) -> bytes:
        """Write messages."""
        for record in records:
            self._rows.append([self._cell(record, each) for each in self._columns])
            self._size += record.size
        if len(self._rows) >= _ROW_GROUP or self._size >= _ROW_GROUP_BYTES:
            self._write_group()
        return self._sink.take()

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

    def end(self, truncated: str) -> bytes:
        """End the file."""
        self._write_group()
        if truncated:
            self._writer.add_key_value_metadata({"truncated": truncated})
        self._writer.close()
        return self._sink.take()


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
        case "transaction":
            return None if record.fate is Fate.NONE else record.fate.value
        case _:
            raise AssertionError(f"{name} is not one of {PLAIN}")


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
            return json_line([[name, _part_text(value)] for name, value in record.headers])
        case _:
            return _plain(record, column.root, zone)


def _part_text(part: Decoded) -> str | None:
    if part.kind == "null":
        return None
    if part.kind == "bytes":
        return base64.b64encode(part.content).decode()
    return part.text
