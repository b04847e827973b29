"""Compares the text of a page with the output of its commands.

`…` stands for anything within a line, and a line that is only `…` for any lines. Three things need
no `…`, because they differ from run to run: a number before a unit of time or size, a date
with a time, and an id of 22 characters. Runs of spaces are equal whatever their length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

ANY = "…"
_VARYING = (
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?Z?"), "<time>"),
    (re.compile(r"\b\d+(?:[.,]\d+)*(?= ?(?:µs|ms|s|B|kB|KiB|MB|MiB|GB|GiB)\b)"), "<number>"),
    (re.compile(r"(?<![\w-])(?=[\w-]*[A-Z\d])[\w-]{22}(?![\w-])"), "<id>"),
)
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


def lines_of(printed: str) -> list[str]:
    """Return the lines that a terminal shows after it has taken all of this."""
    plain = _CONTROL.sub("", printed).replace("\r\n", "\n")
    lines = [line.rpartition("\r")[2].rstrip() for line in plain.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def matches(shown: Sequence[str], printed: str, begins: bool = False) -> bool:
    """Return whether the page shows the output.

    Args:
        begins: whether the output may go on below the text of the page.
    """
    pattern = "".join(_pattern(line) for line in shown)
    text = "".join(f"{_without_varying(line)}\n" for line in lines_of(printed))
    found = re.match(pattern, text) if begins else re.fullmatch(pattern, text)
    return found is not None


def _pattern(line: str) -> str:
    if line.strip() == ANY:
        return r"(?:.*\n)*?"
    parts = _without_varying(line).split(ANY)
    return "[^\n]*?".join(re.escape(part) for part in parts) + "\n"


def _without_varying(line: str) -> str:
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    return re.sub(r" +", " ", line.rstrip())
