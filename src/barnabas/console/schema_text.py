"""Texts of schemas: their lines, and the differences between two versions."""

from __future__ import annotations

import contextlib
import difflib
import json
from typing import TYPE_CHECKING, NamedTuple

from barnabas.serializers.schema import SchemaType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
