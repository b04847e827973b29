r"""Records formatted by a template with kcat's letters: `-f '%t [%p] %o: %k -> %s\n'`.

A template is compiled once per partition, so parts that are constant in a partition become text. If
a template only needs attributes of the record, one formatting call prints a record. Nulls, headers
and lengths need a call for each piece. Templates and delimiters may contain escapes: \n, \t, \x1f.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from barnabas.client.errors import RecordDeserializationError

if TYPE_CHECKING:
    from barnabas.cli.records.formats import Format
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.record.compiled import CompiledRecord

# Renders records of one partition to output bytes.
Render: TypeAlias = Callable[[Sequence["CompiledRecord"]], bytes]
Piece: TypeAlias = Callable[["CompiledRecord"], bytes]

LETTERS = {
    "%t": "topic",
    "%p": "partition",
    "%o": "offset",
    "%T": "timestamp in ms",
    "%I": "timestamp as ISO time, UTC",
    "%k": "key",
    "%K": "its length, -1 for null",
    "%s": "value",
    "%S": "its length",
    "%R": "its length in four bytes, big-endian",
    "%h": "headers",
    "%%": "a percent sign",
}
_TOKEN = re.compile(r"%.|\\x[0-9a-fA-F]{2}|\\.|[^%\\]+|[%\\]", re.DOTALL)
_INT32 = struct.Struct(">i")
_EPOCH = datetime.fromtimestamp(0, UTC)
# Pieces that one call of bytes % tuple can print: the attribute and its format.
_FAST = {"%o": ("offset", b"%d"), "%T": ("timestamp", b"%d")}


class Reading(NamedTuple):
    """The conversion of keys and values for the output."""

    # None: raw bytes.
    key: Format | None = None
    value: Format | None = None
    # Text for null: empty, or NULL.
    null: bytes = b""


def field(record: CompiledRecord, tp: TopicPartition, what: str, how: Format | None) -> Any:
    """Return the key or value of a record, converted by the format; None for null.

    Without a format, the value is returned as bytes.

    Raises:
        RecordDeserializationError: The data does not match the format.
    """
    data: bytes | None = getattr(record, what)
    if data is None or how is None:
        return data
    try:
        return how.read(data)
    except ValueError as error:
        raise RecordDeserializationError(tp, record.offset, what, error) from error


def value_lines(null: bytes, delimiter: bytes) -> Render:
    """Return the default renderer: it prints each value and a delimiter."""

    def render(records: Sequence[CompiledRecord]) -> bytes:
        values = [null if record.value is None else record.value for record in records]
        values.append(b"")
        return delimiter.join(values)

    return render


def compile_template(template: str, reading: Reading) -> Callable[[TopicPartition], Render]:
    """Return a function that creates the renderer of a partition.

    Raises:
        click.UsageError: The template contains an unknown % letter.
    """
    tokens = _TOKEN.findall(template)
    for token in tokens:
        if token.startswith("%") and token not in LETTERS:
            raise click.UsageError(f"--format: unknown letter {token}; known: {' '.join(LETTERS)}")

    def of_partition(tp: TopicPartition) -> Render:
        slow = _by_pieces([_piece(token, tp, reading) for token in tokens])
        return _by_formatting(tokens, tp, reading, slow) or slow

    return of_partition


def _by_pieces(pieces: list[bytes | Piece]) -> Render:
    def one(record: CompiledRecord) -> bytes:
        return b"".join([p if isinstance(p, bytes) else p(record) for p in pieces])

    return lambda records: b"".join(map(one, records))


def _by_formatting(
    tokens: list[str], tp: TopicPartition, reading: Reading, slow: Render
) -> Render | None:
    """Return a renderer with one `%` call per record; None if the template does not allow it.

    Records with nulls fall back to `slow`.
    """
    fast = dict(_FAST)
    if reading.key is None:
        fast["%k"] = ("key", b"%b")
    if reading.value is None:
        fast["%s"] = ("value", b"%b")
    layout = []
    names = []
    for token in tokens:
        if token in fast:
            name, how = fast[token]
            names.append(name)
            layout.append(how)
        else:
            piece = _piece(token, tp, reading)
            if not isinstance(piece, bytes):
                return None
            layout.append(piece.replace(b"%", b"%%"))
    if len(names) < 2:
        # attrgetter with a single name does not return a tuple.
        return None
    text, get = b"".join(layout), attrgetter(*names)

    def render(records: Sequence[CompiledRecord]) -> bytes:
        try:
            return b"".join([text % get(record) for record in records])
        except TypeError:
            return slow(records)

    return render


def _piece(token: str, tp: TopicPartition, reading: Reading) -> bytes | Piece:
    null = reading.null
    match token:
        case "%t":
            return tp.topic.encode()
        case "%p":
            return b"%d" % tp.partition
        case "%%":
            return b"%"
        case "%o":
            return lambda record: b"%d" % record.offset
        case "%T":
            return lambda record: b"%d" % record.timestamp
        case "%I":
            return lambda record: _iso_time(record, tp)
        case "%k":
            return lambda record: _text(field(record, tp, "key", reading.key), null)
        case "%s":
            return lambda record: _text(field(record, tp, "value", reading.value), null)
        case "%K":
            return lambda record: b"%d" % _length(record.key)
        case "%S":
            return lambda record: b"%d" % _length(record.value)
        case "%R":
            return lambda record: _INT32.pack(_length(record.value))
        case "%h":
            return _headers
        case _:
            return unescape(token)


def _text(value: Any, null: bytes) -> bytes:
    """Return the output bytes for a key or value."""
    if value is None:
        return null
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    from barnabas.serializers import serialize_json

    return serialize_json(value) or b""


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _iso_time(record: CompiledRecord, tp: TopicPartition) -> bytes:
    try:
        moment = _EPOCH + timedelta(milliseconds=record.timestamp)
    except OverflowError:
        problem = ValueError(f"{record.timestamp} ms is no date before the year 10000; use %T")
        raise RecordDeserializationError(tp, record.offset, "timestamp", problem) from problem
    return moment.strftime("%Y-%m-%dT%H:%M:%S.").encode() + b"%03dZ" % (record.timestamp % 1000)


def _headers(record: CompiledRecord) -> bytes:
    return b",".join(
        [
            name.encode() + b"=" + (b"NULL" if value is None else value)
            for name, value in record.headers
        ]
    )


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_LETTERS = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def unescape(text: str) -> bytes:
    r"""Return the bytes of a text with escapes; an unknown escape stays unchanged."""
    pieces = []
    end = 0
    for found in _ESCAPE.finditer(text):
        pieces.append(text[end : found.start()].encode())
        name = found[1]
        if len(name) == 3:
            pieces.append(bytes.fromhex(name[1:]))
        else:
            pieces.append(_LETTERS.get(name, found[0].encode()))
        end = found.end()
    pieces.append(text[end:].encode())
    return b"".join(pieces)


def unescape_option(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> bytes | None:
    """Parse an option for text with escapes, which may be empty (a click callback)."""
    return None if value is None else unescape(value)


def unescape_separator(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> bytes | None:
    """Parse a separator option, at which input is split (a click callback).

    Raises:
        click.BadParameter: The separator is empty.
    """
    if value == "":
        hint = "; -W sends each file as one record" if param.name == "delimiter" else ""
        raise click.BadParameter(f"input cannot be split at an empty text{hint}", param=param)
    return unescape_option(ctx, param, value)
