"""Java's .properties format, which Kafka uses for server configuration and `meta.properties`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Java ends lines only at these; str.splitlines knows more line ends.
_LINE_END = re.compile(r"\r\n|\n|\r")
_BLANK = " \t\f"
_SEPARATORS = "=:"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}
_UNICODE_DIGITS = 4


class PropertiesError(ValueError):
    """Text that is not a valid .properties file."""


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys and values in order; a repeated key keeps its last value, as in Java.

    Raises:
        PropertiesError: A `\\u` escape does not have four hexadecimal digits.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        found[_unescape(key)] = _unescape(value)
    return found


def format_properties(values: Mapping[str, str]) -> str:
    """Return text that `parse_properties` and Java read back as `values`, one line per key."""
    return "".join(
        f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}\n"
        for key, value in values.items()
    )


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines without comments and blank lines; join continued lines."""
    pending: list[str] = []
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANK)
        if not pending and (not line or line[0] in "#!"):
            continue
        if _is_continued(line):
            pending.append(line[:-1])
            continue
        yield "".join(pending) + line
        pending = []
    if pending:
        yield "".join(pending)


def _is_continued(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Split a line into its key and value, both still escaped.

    The first unescaped `=`, `:` or blank ends the key.
    """
    end = 0
    while end < len(line) and line[end] not in _SEPARATORS + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest and rest[0] in _SEPARATORS:
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    pieces: list[str] = []
    at = 0
    while at < len(text):
        mark = text.find("\\", at)
        if mark < 0 or mark + 1 == len(text):
            pieces.append(text[at:] if mark < 0 else text[at:mark])
            break
        pieces.append(text[at:mark])
        letter = text[mark + 1]
        at = mark + 2
        if letter == "u":
            pieces.append(_unicode(text[at : at + _UNICODE_DIGITS]))
            at += _UNICODE_DIGITS
        else:
            pieces.append(_ESCAPES.get(letter, letter))
    # Java writes a character above U+FFFF as two escapes (surrogates); join them.
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unicode(digits: str) -> str:
    if re.fullmatch(r"[0-9a-fA-F]{4}", digits) is None:
        raise PropertiesError(f"malformed \\u escape: {digits!r}")
    return chr(int(digits, 16))


def _escape(text: str, *, is_key: bool) -> str:
    pieces: list[str] = []
    for index, letter in enumerate(text):
        if letter in _WRITTEN_ESCAPES:
            pieces.append(_WRITTEN_ESCAPES[letter])
        elif letter in "=:#!" or (letter == " " and (is_key or index == 0)):
            pieces.append("\\" + letter)
        elif " " <= letter <= "~":
            pieces.append(letter)
        else:
            units = letter.encode("utf-16-be", "surrogatepass")
            pieces.extend(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
    return "".join(pieces)
