"""Text from clusters and clients, made safe for terminals and logs.

Client ids, group ids, config values and error messages from peers can contain any character. A
newline can forge a log line, and an escape sequence can change the terminal. All such output passes
through this module.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Terminal controls (C0, DEL, C1), line separators, marks for the direction of text,
# and lone surrogates, which cannot be encoded.
_REST = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNPRINTABLE = re.compile(f"[\x00-\x1f{_REST}]")
_UNPRINTABLE_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f{_REST}]")
_UNPRINTABLE_IN_JSON = re.compile(f"[{_REST}]")
# The same controls in UTF-8.
_UNPRINTABLE_BYTES = re.compile(
    rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    r"""Return the text on one line, with escapes (\n, \x1b, \u2028...) for controls."""
    return text if text.isprintable() else _UNPRINTABLE.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Return the text with its newlines and tabs, and with escapes for other controls."""
    return text if text.isprintable() else _UNPRINTABLE_IN_LINES.sub(_escape, text)


def printable_bytes(data: bytes) -> bytes:
    """Return UTF-8 text with its newlines and tabs, and with escapes for other controls."""
    return _UNPRINTABLE_BYTES.sub(_escape_bytes, data)


def json_line(value: Any) -> str:
    """Return a JSON value on one line, with JSON escapes for controls."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else _UNPRINTABLE_IN_JSON.sub(_escape_json, text)


def counted(count: int, noun: str) -> str:
    """Return a number and its noun: "1 record", "2 records"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def some(names: Sequence[object], count: int = 5) -> str:
    """Return the first names, separated by commas, and the number of the others."""
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(map(str, names[:count])) + more


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a message, which may have several lines."""
    # Imported here because `barnabas start` runs without click.
    import click

    click.echo(printable_lines(str(text)), err=err, nl=nl)


def _escape(found: re.Match[str]) -> str:
    return _escaped(found[0])


def _escape_bytes(found: re.Match[bytes]) -> bytes:
    return _escaped(found[0].decode()).encode()


def _escape_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _escaped(character: str) -> str:
    named = _NAMED.get(character)
    if named is not None:
        return named
    return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"
