"""Keys, values and headers as people read them: JSON, text, or a dump of bytes.

Records can be large, and any producer can write anything. All that is shown is bounded.
"""

from __future__ import annotations

import base64
import codecs
import hmac
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

# The parts of a record that are decoded.
KEY, VALUE = "key", "value"

# Bytes of a value in a list of messages, and on a message's own page.
LISTED_BYTES = 2 * 1024
FULL_BYTES = 64 * 1024
# Values above this size are text or bytes: they are not parsed, and read in pieces. Filters and
# columns see so much of their beginning.
PARSED_BYTES_MAX = 1024 * 1024
PIECE_BYTES = 192 * 1024

# In a list, JSON up to this size is shown on one line.
_LINE_BYTES = 300
_DUMPED_BYTES = 512
_DUMP_WIDTH = 16
# Indented JSON grows with its depth.
DEPTH_MAX = 32


class FormatError(ValueError):
    """Bytes do not have a format; the text says why."""


class ShownBytes(NamedTuple):
    """Bytes as text, and what they are."""

    # "null", "empty", "json", "text", "bytes" or "hidden".
    kind: str
    text: str
    # Number of bytes, including those that are not shown.
    size: int
    is_cut: bool
    # How the bytes were decoded, or why they were not; "" for bytes without a schema or format.
    note: str = ""
    # Whether the bytes of the record can be downloaded: no mask hides a part of them.
    has_raw: bool = False


_UNSET: Any = object()


class Decoded:
    """A key, a value or the value of a header: decoded, and with secrets masked.

    Args:
        kind: As in `ShownBytes`.
        data: JSON or text in UTF-8, or the bytes themselves if they are neither.
        raw: The bytes of the record; None if a mask hides a part of them.
        size: Number of bytes of the record.
        note: How the bytes were decoded, or why they were not.
        content: The value, if the text is not JSON but has members nevertheless, like XML.
    """

    __slots__ = ("_content", "_data", "_text", "_tree", "kind", "note", "raw", "size")

    def __init__(
        self,
        kind: str,
        data: bytes,
        raw: bytes | None,
        size: int,
        note: str = "",
        content: Any = _UNSET,
    ) -> None:
        self.kind = kind
        self.raw = raw
        self.size = size
        self.note = note
        self._data = data
        self._content = content
        # The value with the bytes that JSON shows as base64; unset if it is the content.
        self._tree: Any = _UNSET
        self._text: str | None = None

    @property
    def is_masked(self) -> bool:
        """Whether a mask hides the bytes or a part of them."""
        return self.raw is None and self.kind != "null"

    @property
    def is_large(self) -> bool:
        """Whether the value is so large that it is read in pieces; it is text or bytes then."""
        return len(self._data) > PARSED_BYTES_MAX

    def pieces(self) -> Iterator[str]:
        """Yield the text of `text` in pieces; the pieces of bytes are without spaces."""
        view = memoryview(self._data)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for start in range(0, len(view), PIECE_BYTES):
            piece = view[start : start + PIECE_BYTES]
            yield bytes(piece).hex() if self.kind == "bytes" else decoder.decode(piece)

    def base64_pieces(self) -> Iterator[str]:
        """Yield the bytes as base64, in pieces."""
        view = memoryview(self._data)
        # A piece of a multiple of three bytes has no padding.
        assert PIECE_BYTES % 3 == 0, PIECE_BYTES
        for start in range(0, len(view), PIECE_BYTES):
            yield base64.b64encode(view[start : start + PIECE_BYTES]).decode()

    def digest(self, key: bytes) -> bytes:
        """Return a hash of the bytes with a secret key."""
        return hmac.digest(key, self._data, "sha256")

    @property
    def content(self) -> Any:
        """The value for filters and columns: what JSON can hold, or bytes that are no text.

        Of a large value it is the beginning.
        """
        if self._content is _UNSET:
            self._content = self._read_content()
        return self._content

    @property
    def tree(self) -> Any:
        """The content for masks: with the bytes that JSON shows as base64."""
        return self.content if self._tree is _UNSET else self._tree

    def _read_content(self) -> Any:
        match self.kind:
            case "null":
                return None
            case "json":
                return msgspec.json.decode(self._data)
            case "bytes":
                return self._data[:PARSED_BYTES_MAX]
            case _ if self.is_large:
                return self._data[:PARSED_BYTES_MAX].decode(errors="ignore")
            case _:
                return self._data.decode()

    @property
    def text(self) -> str:
        """The whole text in one piece, JSON on one line; a text of hex digits for bytes."""
        if self._text is None:
            if self.kind == "bytes":
                self._text = self._data.hex(" ")
            elif self.kind == "json":
                self._text = msgspec.json.format(self._data, indent=0).decode()
            else:
                self._text = self._data.decode()
        return self._text

    def noted(self, note: str) -> Decoded:
        """Return the same with another note."""
        found = Decoded(self.kind, self._data, self.raw, self.size, note, self._content)
        return found.with_tree(self._tree)

    def with_tree(self, tree: Any) -> Decoded:
        """Set the value with the bytes that JSON shows as base64, and return this object."""
        self._tree = tree
        return self

    def shown(self, limit: int) -> ShownBytes:
        """Return the text for a page.

        Args:
            limit: Number of bytes that are shown.
        """
        data, length = self._data, len(self._data)
        has_raw = bool(self.raw)
        if self.kind == "bytes":
            part = data[: min(limit, _DUMPED_BYTES)]
            is_cut = self.size > len(part)
            return ShownBytes("bytes", _dump(part), self.size, is_cut, self.note, has_raw)
        if self.kind == "json" and length <= limit:
            is_short = limit <= LISTED_BYTES and length <= _LINE_BYTES
            text = msgspec.json.format(data, indent=0 if is_short else 2).decode()
            text = _ESCAPES.sub(_without_escape, text)
            return ShownBytes("json", text, self.size, False, self.note, has_raw)
        kind = "text" if self.kind == "json" else self.kind
        # A character at the cut may be incomplete.
        text = data[:limit].decode(errors="ignore")
        return ShownBytes(kind, text, self.size, length > limit, self.note, has_raw)


def decode_plain(data: bytes | None) -> Decoded:
    """Return bytes as JSON, else as text, else as bytes."""
    if data is None:
        return Decoded("null", b"", None, 0)
    data = bytes(data)
    size = len(data)
    if not size:
        return Decoded("empty", b"", data, 0)
    if not is_text(data):
        return Decoded("bytes", data, data, size)
    if size <= PARSED_BYTES_MAX and data.lstrip()[:1] in (b"{", b"["):
        content = _parsed(data)
        if content is not _UNSET:
            return Decoded("json", data, data, size, content=content)
    return Decoded("text", data, data, size)


def decode_as_text(data: bytes) -> Decoded:
    """Return bytes as text; bytes that are not UTF-8 are shown as they are, with a note."""
    if not is_text(data):
        return Decoded("bytes", data, data, len(data), "not UTF-8")
    return Decoded("text", data, data, len(data))


def decode_as_json(data: bytes) -> Decoded:
    """Return bytes as JSON, also a number or a text; other bytes as they are, with a note."""
    if is_text(data) and is_json(data):
        return Decoded("json", data, data, len(data))
    return decode_plain(data).noted("not JSON")


def decoded_value(value: Any, raw: bytes, note: str) -> Decoded:
    """Return a value that a decoder returned.

    Args:
        value: What JSON can hold; text is shown without quotation marks.
        raw: The bytes of the record.
        note: Names the decoder.

    Raises:
        TypeError: JSON cannot hold the value.
        ValueError: JSON cannot hold the value.
    """
    if isinstance(value, str):
        return Decoded("text", value.encode(), raw, len(raw), note)
    tree = msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True)
    data = msgspec.json.encode(tree)
    if not is_shallow(data):
        return Decoded("text", data, raw, len(raw), note)
    return Decoded("json", data, raw, len(raw), note).with_tree(tree)


def is_text(data: bytes) -> bool:
    """Return whether bytes are UTF-8 without NUL."""
    if b"\0" in data:
        return False
    decoder, view = codecs.getincrementaldecoder("utf-8")(), memoryview(data)
    try:
        for start in range(0, len(view), PIECE_BYTES):
            decoder.decode(view[start : start + PIECE_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def is_json(data: bytes) -> bool:
    """Return whether bytes are JSON that is small and shallow enough to be parsed and indented."""
    return _parsed(data) is not _UNSET


def _parsed(data: bytes) -> Any:
    """Return the value of JSON; `_UNSET` for other bytes, and for large or deep JSON."""
    if len(data) > PARSED_BYTES_MAX or not is_shallow(data):
        return _UNSET
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _UNSET


_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))


def is_shallow(data: bytes) -> bool:
    """Return whether JSON has few levels; brackets inside strings count too."""
    brackets = data.translate(None, _NO_BRACKETS)
    if brackets.count(b"{") + brackets.count(b"[") <= DEPTH_MAX:
        return True
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket in b"{[" else -1
        if depth > DEPTH_MAX:
            return False
    return True


# Any escape of a JSON text; the groups are the digits of letters beyond ASCII.
_ESCAPES = re.compile(
    r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|u([0-9a-f]{4})|.)", re.IGNORECASE
)


def _without_escape(found: re.Match[str]) -> str:
    """Return the letter for an escape; the escape itself for other characters and for ASCII."""
    digits = [each for each in found.groups() if each]
    units = b"".join(bytes.fromhex(each) for each in digits)
    letter = units.decode("utf-16-be", "ignore")
    return letter if letter.isprintable() and not letter.isascii() else found[0]


def _dump(data: bytes) -> str:
    """Return offsets, hexadecimal digits and printable characters."""
    lines = []
    for start in range(0, len(data), _DUMP_WIDTH):
        row = data[start : start + _DUMP_WIDTH]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:04x}  {row.hex(' '):<{3 * _DUMP_WIDTH}} {letters}")
    return "\n".join(lines)
