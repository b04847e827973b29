"""Conversion of keys and values from and to text: `-s key=long`, `-s value=json`, `-s '>iq$'`.

Names are those of Kafka's serializers, and hex and base64. A text of the letters `<>bBhHiIqQcs$` is
a layout of adjacent fields, as in kcat. `<` and `>` set the byte order. `b`, `h`, `i` and `q` are
integers of 1, 2, 4 and 8 bytes (capitals: unsigned). `c` is a character, `s` the rest as text, and
`$` requires the end of the data.
"""

from __future__ import annotations

import base64
import contextlib
import re
import struct
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

import click

from barnabas import serializers
from barnabas.cli.common.printable import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from rich.progress import Progress as Bar, TaskID

    from barnabas.serializers.lookups import Part


class Format(NamedTuple):
    """A conversion between bytes and text. The caller handles nulls."""

    # Convert bytes to a JSON value: a string, number, boolean, list or object.
    read: Callable[[bytes], Any]
    # Convert text or a JSON value to bytes. Both functions raise ValueError or TypeError.
    write: Callable[[Any], bytes | None]


class FormatMaker(Protocol):
    """Makes the formats of a schema registry (`schema_formats`)."""

    def named(self, name: str, part: Part) -> Format:
        """Return the format of keys or values."""
        ...

    def check_used(self, parts: Collection[Part]) -> None:
        """Check that no option is given for other parts than these, which have schemas."""
        ...


def _number(kind: type[int | float]) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        return kind(value) if isinstance(value, str) else value

    return parse


def _boolean(value: Any) -> Any:
    words = {"true": True, "false": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


def _json_text(value: Any) -> bytes | None:
    """Return JSON text unchanged if it is valid, and any other value as JSON."""
    if not isinstance(value, str):
        return serializers.serialize_json(value)
    data = value.encode()
    serializers.deserialize_json(data)
    return data


def _uuid(value: Any) -> bytes | None:
    return serializers.serialize_uuid(UUID(value))


def _base64(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        raise ValueError(f"{value!r} is not base64") from None


def _typed(name: str, parse: Callable[[Any], Any]) -> Format:
    serialize = getattr(serializers, f"serialize_{name}")
    deserialize: Callable[[bytes | None], Any] = getattr(serializers, f"deserialize_{name}")
    return Format(deserialize, lambda value: serialize(parse(value)))


_FORMATS: dict[str, Format] = {
    "string": _typed("string", lambda value: value),
    "json": Format(serializers.deserialize_json, _json_text),
    "short": _typed("short", _number(int)),
    "integer": _typed("integer", _number(int)),
    "long": _typed("long", _number(int)),
    "float": _typed("float", _number(float)),
    "double": _typed("double", _number(float)),
    "boolean": _typed("boolean", _boolean),
    "uuid": Format(lambda data: str(serializers.deserialize_uuid(data)), _uuid),
    "hex": Format(bytes.hex, bytes.fromhex),
    "base64": Format(lambda data: base64.b64encode(data).decode(), _base64),
}
# Formats of a schema registry; see `schema_formats`.
SCHEMA_FORMATS = ("avro", "json-schema", "protobuf")
NAMES = (*_FORMATS, *SCHEMA_FORMATS)


def parse_formats(
    specs: Sequence[str], *, layouts: bool, schemas: FormatMaker | None = None
) -> tuple[Format | None, Format | None]:
    """Return the formats of key and value that the `-s` options select; None for raw bytes.

    Args:
        specs: key=NAME, value=NAME, or NAME for both. The last option wins.
        layouts: Whether layouts of kcat are allowed. They can be read but not written.
        schemas: Makes the formats of a schema registry; None if these are not allowed.

    Raises:
        click.UsageError: There is no such format, or it lacks an option.
        click.ClickException: The schema registry was not reached.
    """
    names: dict[Part, str] = {}
    for spec in specs:
        where, separator, name = spec.rpartition("=")
        if separator and where not in ("key", "value"):
            raise click.UsageError(f"-s {spec}: write FORMAT, key=FORMAT or value=FORMAT")
        if where != "value":
            names["key"] = name
        if where != "key":
            names["value"] = name
    if schemas is not None:
        schemas.check_used([part for part, name in names.items() if name in SCHEMA_FORMATS])
    made: dict[Part, Format] = {}
    for part, name in names.items():
        if name in SCHEMA_FORMATS and schemas is not None:
            made[part] = schemas.named(name, part)
        else:
            made[part] = _named(name, layouts=layouts)
    return made.get("key"), made.get("value")


def _named(name: str, *, layouts: bool) -> Format:
    found = _FORMATS.get(name)
    if found is not None:
        return found
    if layouts and re.fullmatch(r"[<>bBhHiIqQcs$]+", name):
        return Format(_layout_reader(name), _not_written)
    names = ", ".join(NAMES)
    more = ", or a layout such as >iq" if layouts else ""
    raise click.UsageError(f"-s {name}: unknown format; known formats: {names}{more}")


def _not_written(_value: Any) -> bytes:
    raise ValueError("layouts can only be read")


def _layout_reader(layout: str) -> Callable[[bytes], str]:
    """Return a function that prints the fields as kcat does: without separators."""

    def read(data: bytes) -> str:
        order, position = ">", 0
        pieces = []
        for letter in layout:
            if letter in "<>":
                order = letter
            elif letter == "$":
                if position < len(data):
                    raise ValueError(
                        f"{len(data) - position} byte(s) remain after the layout {layout}"
                    )
            elif letter == "s":
                pieces.append(data[position:].decode(errors="replace"))
                position = len(data)
            else:
                size = struct.calcsize(order + letter)
                if position + size > len(data):
                    raise ValueError(f"{len(data)} byte(s) are too few for {layout}")
                (field,) = struct.unpack_from(order + letter, data, position)
                pieces.append(
                    field.decode(errors="replace") if isinstance(field, bytes) else str(field)
                )
                position += size
        return "".join(pieces)

    return read


_SHOWN_EVERY_S = 0.1


class Progress:
    """A counter of records and bytes that displays nothing."""

    def __init__(self) -> None:
        self.records = 0
        # Bytes.
        self.size = 0
        self.started_s = time.monotonic()

    def advance(self, records: int, size: int) -> None:
        """Count records and their bytes."""
        self.records += records
        self.size += size

    def __str__(self) -> str:
        return summary_line(self.records, self.size, time.monotonic() - self.started_s)


class _ShownProgress(Progress):
    """A counter that also displays a line and a bar, relative to the total records or bytes."""

    def __init__(self, bar: Bar, task: TaskID, *, bytes_count: bool) -> None:
        super().__init__()
        self._bar = bar
        self._task = task
        self._bytes_count = bytes_count
        self._shown_s = 0.0

    def advance(self, records: int, size: int) -> None:
        super().advance(records, size)
        now = time.monotonic()
        if now - self._shown_s >= _SHOWN_EVERY_S:
            self._shown_s = now
            done = self.size if self._bytes_count else self.records
            self._bar.update(self._task, completed=done, passed=str(self))


@contextlib.contextmanager
def progress(
    *, visible: bool, records: int | None = None, size: int | None = None
) -> Iterator[Progress]:
    """Yield a counter; display it during the block if standard error is a terminal.

    Args:
        visible: Whether to display it. False if the line would mix with the output.
        records: The expected number of records, if it is known.
        size: The expected number of bytes, if it is known.
    """
    if not visible or not sys.stderr.isatty():
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress as Bar, TextColumn

    columns = (BarColumn(), TextColumn("{task.fields[passed]}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("records", total=size or records or None, passed="")
        yield _ShownProgress(bar, task, bytes_count=bool(size))


def summary_line(records: int, size: int, seconds: float) -> str:
    """Return the records, bytes and rate as text."""
    rate = records / seconds if seconds > 0 else 0.0
    amount = f"{counted(records, 'record')}, {size / 1e6:,.1f} MB"
    return f"{amount} in {seconds:.1f} s, {rate:,.0f} records/s"
