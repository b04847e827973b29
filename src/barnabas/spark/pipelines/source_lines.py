"""Finds the lines of a project's definitions that an error is about.

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
