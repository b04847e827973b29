"""Differences, line by line, between versions of a schema and between two records.

Records are masked before they are compared, with the names of members in order: another order of
the names is no difference.
"""

from __future__ import annotations

import contextlib
import difflib
import json
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.console.messages.decoded import FULL_BYTES
from barnabas.serializers.schema import SchemaType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.console.messages.decoded import Decoded
    from barnabas.console.messages.record_view import DecodedRecord
    from barnabas.serializers.schema import Schema


# Longer texts are shown without differences, whose search takes too long.
_LINES_MAX = 5_000
# Unchanged lines beside a change.
_CONTEXT_LINES = 3


class Line(NamedTuple):
    """A line of a comparison."""

    # "+" if the line is new, "-" if it is gone, "" if it did not change, "…" for left out lines.
    mark: str
    # The numbers in the older and in the newer text; None in a text that does not have the line.
    old: int | None
    new: int | None
    text: str


def schema_lines(schema: Schema) -> list[str]:
    """Return the lines of a schema; JSON is indented."""
    text = schema.text
    if schema.kind is not SchemaType.PROTOBUF:
        # A registry may have accepted text that is no JSON; the user sees it as it is.
        with contextlib.suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return text.splitlines()


def compare(old: Sequence[str], new: Sequence[str]) -> list[Line] | None:
    """Return the differences with the lines around them; None if a text is too long."""
    if max(len(old), len(new)) > _LINES_MAX:
        return None
    matcher = difflib.SequenceMatcher(None, old, new)
    found: list[Line] = []
    for group in matcher.get_grouped_opcodes(_CONTEXT_LINES):
        if found or group[0][1] or group[0][3]:
            found.append(Line("…", None, None, ""))
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                found += _unchanged(old, old_from, old_to, new_from)
                continue
            found += (Line("-", n + 1, None, old[n]) for n in range(old_from, old_to))
            found += (Line("+", None, n + 1, new[n]) for n in range(new_from, new_to))
    return found


def _unchanged(old: Sequence[str], start: int, end: int, new_start: int) -> Iterator[Line]:
    for n in range(start, end):
        yield Line("", n + 1, new_start + n - start + 1, old[n])


class PartDiff(NamedTuple):
    """The difference of the keys, the values or the headers of two records."""

    name: str
    # Empty if they are equal; None if they have too many lines to compare them.
    lines: list[Line] | None


def diff_records(before: DecodedRecord, after: DecodedRecord) -> list[PartDiff]:
    """Return the differences of keys, values and headers."""
    return [
        PartDiff("Key", compare(_lines(before.key), _lines(after.key))),
        PartDiff("Value", compare(_lines(before.value), _lines(after.value))),
        PartDiff("Headers", compare(_header_lines(before), _header_lines(after))),
    ]


def _lines(part: Decoded) -> list[str]:
    """Return a key or a value in lines; null and empty values have lines of their own."""
    if part.kind in ("null", "empty"):
        return [part.kind]
    content = part.content
    if isinstance(content, dict | list):
        data = msgspec.json.encode(content, order="sorted")
        text = msgspec.json.format(data, indent=2).decode()
    else:
        text = part.shown(FULL_BYTES).text
    return text.splitlines()


def _header_lines(record: DecodedRecord) -> list[str]:
    return [f"{name}: {line}" for name, value in record.headers for line in _lines(value)]
