"""Keys, values and headers as people read them: JSON, text, or a dump of bytes.

Records can be large, and any producer can write anything. All output is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FULL_BYTES", "LISTED_BYTES", "ShownBytes", "shown_bytes", "shown_headers"]

# Bytes of a value in a list of messages, and on a message's own page.
LISTED_BYTES = 2 * 1024
FULL_BYTES = 64 * 1024
# In a list, JSON up to this size is shown on one line.
_LINE_BYTES = 300
_DUMPED_BYTES = 512
_DUMP_WIDTH = 16
# Indented JSON grows with its depth.
_DEPTH_MAX = 32
_HEADERS_MAX = 50
_HEADER_BYTES = 256
# A character in UTF-8 has up to four bytes, so a cut leaves up to three.
_CHARACTER_BYTES = 3


class ShownBytes(NamedTuple):
    """Bytes as text, and what they are."""

    # "null", "empty", "json", "text" or "bytes".
    kind: str
    text: str
    # Number of bytes, including those that are not shown.
    size: int
    is_cut: bool
    # The schema by which the bytes were decoded, or why they were not; "" for bytes without one.
    note: str = ""


def shown_bytes(data: bytes | None, limit: int) -> ShownBytes:
    """Return the text for a key or a value.

    Args:
        data: The bytes; None for null.
        limit: Number of bytes that are shown.
    """
    if data is None:
        return ShownBytes("null", "", 0, is_cut=False)
    size = len(data)
    if not size:
        return ShownBytes("empty", "", 0, is_cut=False)
    part = bytes(data[:limit])
    text = _decoded(part, is_cut=size > limit)
    if text is None:
        part = part[:_DUMPED_BYTES]
        return ShownBytes("bytes", _dump(part), size, is_cut=size > len(part))
    if size <= limit:
        is_short = limit <= LISTED_BYTES and size <= _LINE_BYTES
        json_text = _json_text(part, indent=0 if is_short else 2)
        if json_text is not None:
            return ShownBytes("json", json_text, size, is_cut=False)
    return ShownBytes("text", text, size, is_cut=size > limit)


def shown_headers(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, ShownBytes]]:
    """Return the first headers of a record."""
    return [
        (name[:_HEADER_BYTES], shown_bytes(value, _HEADER_BYTES))
        for name, value in headers[:_HEADERS_MAX]
    ]


def _decoded(data: bytes, *, is_cut: bool) -> str | None:
    """Return the text if the bytes are UTF-8 without NUL, else None."""
    if b"\0" in data:
        return None
    for left_out in range(_CHARACTER_BYTES + 1 if is_cut else 1):
        try:
            return data[: len(data) - left_out].decode()
        except UnicodeDecodeError:
            continue
    return None


def _json_text(data: bytes, indent: int) -> str | None:
    """Return an object or an array as readable JSON; None for anything else.

    Args:
        data: The bytes.
        indent: Spaces per level; 0 for all on one line.
    """
    if data.lstrip()[:1] not in (b"{", b"[") or _depth(data) > _DEPTH_MAX:
        return None
    try:
        # Unlike a decoder, this keeps numbers, the order of members, and repeated names.
        msgspec.json.decode(data, type=msgspec.Raw)
        return msgspec.json.format(data, indent=indent).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _depth(data: bytes) -> int:
    """Return at least the depth of a JSON text: brackets inside strings count too."""
    deepest = depth = 0
    for byte in data:
        if byte in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
    return deepest


def _dump(data: bytes) -> str:
    """Return offsets, hexadecimal digits and printable characters."""
    lines = []
    for start in range(0, len(data), _DUMP_WIDTH):
        row = data[start : start + _DUMP_WIDTH]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:04x}  {row.hex(' '):<{3 * _DUMP_WIDTH}} {letters}")
    return "\n".join(lines)
