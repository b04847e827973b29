"""The differences of two records, line by line.

Values with members are compared with their names in order, so that another order of the names is
no difference. The records are masked before they are compared.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.console.messages.decoded import FULL_BYTES

if TYPE_CHECKING:
    from barnabas.console.messages.decoded import Decoded
    from barnabas.console.messages.record_view import DecodedRecord

# Equal lines that are shown before and behind a difference.
_CONTEXT = 3
# Above this product of the numbers of differing lines, all of them count as different: comparing
# them takes too long.
_COMPARED_MAX = 1_000_000
_LINES_MAX = 5000

EQUAL, REMOVED, ADDED, SKIPPED = "equal", "removed", "added", "skipped"


class Line(NamedTuple):
    """A line of a difference."""

    # EQUAL, REMOVED, ADDED or SKIPPED.
    kind: str
    # For SKIPPED, how many equal lines are not shown.
    text: str


class PartDiff(NamedTuple):
    """The difference of the keys, the values or the headers of two records."""

    name: str
    is_equal: bool
    lines: list[Line]
    # Whether only a first part of them is compared.
    is_cut: bool


def diff_records(before: DecodedRecord, after: DecodedRecord) -> list[PartDiff]:
    """Return the differences of keys, values and headers."""
    return [
        _diff("Key", _lines(before.key), _lines(after.key)),
        _diff("Value", _lines(before.value), _lines(after.value)),
        _diff("Headers", _header_lines(before), _header_lines(after)),
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


def _diff(name: str, before: list[str], after: list[str]) -> PartDiff:
    is_cut = max(len(before), len(after)) > _LINES_MAX
    is_equal = before == after
    lines = _compared(before[:_LINES_MAX], after[:_LINES_MAX])
    return PartDiff(name, is_equal, _shortened(lines), is_cut)


def _compared(before: list[str], after: list[str]) -> list[Line]:
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    lines = [Line(EQUAL, each) for each in before[:head]]
    old_at = new_at = 0
    for old_start, new_start, size in _equal_blocks(old, new):
        lines += [Line(REMOVED, each) for each in old[old_at:old_start]]
        lines += [Line(ADDED, each) for each in new[new_at:new_start]]
        lines += [Line(EQUAL, each) for each in old[old_start : old_start + size]]
        old_at, new_at = old_start + size, new_start + size
    return lines + [Line(EQUAL, each) for each in before[len(before) - tail :]]


def _equal_blocks(old: list[str], new: list[str]) -> list[tuple[int, int, int]]:
    """Return where equal lines begin in both, and their number; the last block is empty."""
    if len(old) * len(new) > _COMPARED_MAX:
        return [(len(old), len(new), 0)]
    found = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return [(each.a, each.b, each.size) for each in found]


def _shortened(lines: list[Line]) -> list[Line]:
    """Return the differing lines with a few equal ones around them."""
    near = [False] * len(lines)
    for number, line in enumerate(lines):
        if line.kind != EQUAL:
            start, stop = max(0, number - _CONTEXT), min(len(lines), number + _CONTEXT + 1)
            near[start:stop] = [True] * (stop - start)
    found: list[Line] = []
    skipped = 0
    for line, is_near in zip(lines, near, strict=True):
        if not is_near:
            skipped += 1
            continue
        if skipped:
            found.append(Line(SKIPPED, str(skipped)))
            skipped = 0
        found.append(line)
    if skipped:
        found.append(Line(SKIPPED, str(skipped)))
    return found
