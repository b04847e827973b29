"""The differences of two records, line by line.

Values with members are compared with their names in order, so that another order of the names is
no difference. The records are masked before they are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.console.messages.decoded import FULL_BYTES
from barnabas.console.schema_text import Line, compare

if TYPE_CHECKING:
    from barnabas.console.messages.decoded import Decoded
    from barnabas.console.messages.record_view import DecodedRecord


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
