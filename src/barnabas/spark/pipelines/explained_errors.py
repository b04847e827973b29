"""Reduces errors of Spark, which are pages long, to a sentence and a line that a user can act on.

Spark's errors name a column, a function or a table, but not where the user wrote this name: to
Spark, a definition is a plan. The line is found in the text of the definition.
"""

from __future__ import annotations

import ast
import re
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PYTHON_ERROR = re.compile(r"^[\w.]*(?:Error|Exception): (.+)$", re.MULTILINE)
_NOISE = re.compile(
    r" SQLSTATE: \w+|\[STREAM_FAILED\] Query \[[^]]*\] terminated with exception: "
    r"|\([\w.$]*(?:Error|Exception)\) (?:[\w.$]*(?:Error|Exception): )?"
)
# After the sentence: the position in an expression and Spark's plan, or the text of a query.
_PLAN = re.compile(r" SQLSTATE: \w+;.*|\n== SQL ==.*|\n=== Streaming Query ===.*", re.DOTALL)
_FIRST_NAME = re.compile(r"(?:`[^`]+`\.)*`([^`]+)`|at or near '([^']+)'")
_LENGTH_MAX = 1000
_UNRESOLVED = "Failed to resolve flows in the pipeline."


def explain(error: str) -> str:
    """Return the part of an error's text that says what happened.

    An error of Python, for example of our source, is at the end of a traceback in it.
    """
    if "Traceback" in error:
        found = _PYTHON_ERROR.findall(error)
        if found:
            return _shortened(found[-1])
    return _shortened(_NOISE.sub("", _PLAN.sub("", error)))


def is_summary(error: str) -> bool:
    """Return whether an error only names flows whose own errors were reported before."""
    return error.strip().startswith(_UNRESOLVED)


def named_in(error: str) -> str | None:
    """Return the column, function or table that an error of Spark names first; None without one.

    Spark writes names in backticks, and the names that it suggests after the wrong one.
    """
    found = _FIRST_NAME.search(error)
    return None if found is None else found[1] or found[2]


def _shortened(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("at ", "JVM stacktrace"))]
    short = " ".join(lines)
    return short if len(short) <= _LENGTH_MAX else f"{short[:_LENGTH_MAX]}…"


@dataclass(frozen=True, slots=True)
class Place:
    """The beginning of a definition."""

    path: Path
    line: int


def place_of_name(place: Place, name: str | None, directory: Path) -> str:
    """Return where a definition has a name, as `transformations/datasets.py:22`.

    The name is looked for in the definition, and then in the rest of its file. A definition without
    the name is itself the place.

    Args:
        place: the definition.
        name: a name of an error; None if the error has none.
        directory: the project's directory.
    """
    lines: list[int] = []
    if name is not None:
        try:
            text = place.path.read_text()
            lines = (_python_lines if place.path.suffix == ".py" else _sql_lines)(text, name, place)
        except (OSError, SyntaxError, UnicodeDecodeError):
            lines = []
    return _text(place.path, lines or [place.line], directory)


def place_in_traceback(error: BaseException, directory: Path) -> str | None:
    """Return the last line of a project's files at which an error passed; None without one."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return _text(Path(error.filename), [error.lineno or 1], directory)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(directory)
    ]
    return _text(Path(frames[-1].filename), [frames[-1].lineno or 1], directory) if frames else None


def _text(path: Path, lines: list[int], directory: Path) -> str:
    shown = path.relative_to(directory) if path.is_relative_to(directory) else path
    return f"{shown}:{','.join(map(str, lines))}"


def _python_lines(text: str, name: str, place: Place) -> list[int]:
    """Return the lines with the name in a text or after a dot; those of the definition if any."""
    tree = ast.parse(text)
    found = sorted(set(_lines_with(tree, text.splitlines(), name)))
    functions = [
        range(min([node.lineno, *(each.lineno for each in node.decorator_list)]), end + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and (end := node.end_lineno) is not None
    ]
    own = min((each for each in functions if place.line in each), key=len, default=range(0))
    return [line for line in found if line in own] or found


def _lines_with(tree: ast.AST, lines: list[str], name: str) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == name:
            yield node.end_lineno or node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                if _has(lines[number - 1], name):
                    yield number


def _sql_lines(text: str, name: str, _place: Place) -> list[int]:
    return [number for number, line in enumerate(text.splitlines(), 1) if _has(line, name)]


def _has(line: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", line) is not None
