"""CHECK constraints and invariants of a Delta table, translated for `delta-rs`.

The table stores an expression as its author wrote it in Spark's SQL. `delta-rs` evaluates
expressions with DataFusion, whose SQL has other rules for some operators and functions: `/` of two
integers is an example. So the translation knows what means the same in both, and refuses the rest.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.delta.columns import Column, all_columns, contains_type
from barnabas.spark.delta.errors import DeltaTableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.spark.delta.features import TableState

_CHECK_PREFIX = "delta.constraints."
_INVARIANTS = "delta.invariants"
# Spark stores CHAR(n) and VARCHAR(n) as text, with the type in this metadata.
_TEXT_TYPE = "__CHAR_VARCHAR_TYPE_STRING"

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^'\\]*'(?!')|\"[^\"\\]*\"(?!\"))"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))"
    r"|(?P<name>[A-Za-z_]\w*|`[^`]+`)"
    r"|(?P<symbol><=>|<>|<=|>=|==|!=|[=<>+\-*%(),.]))"
)
_KEYWORDS = frozenset(
    {"and", "or", "not", "in", "is", "null", "true", "false", "between", "like", "case", "when",
     "then", "else", "end", "date"}
)  # fmt: skip
_FUNCTIONS = frozenset({"abs", "char_length", "coalesce", "length", "lower", "trim", "upper"})


@dataclass(frozen=True, slots=True)
class Constraint:
    """An expression that must be true for each row; false and NULL violate it."""

    # For messages, with its name and text in the table.
    description: str
    # In DataFusion's SQL.
    expression: str
    # Columns that the expression uses.
    columns: tuple[str, ...]


def table_constraints(state: TableState, columns: list[Column]) -> tuple[Constraint, ...]:
    """Return the constraints of a table.

    Args:
        state: the table.
        columns: the columns that the table will have when the rows are added.

    Raises:
        DeltaTableError: the sink cannot evaluate an expression.
    """
    found = []
    for description, text in _expressions(state, columns):
        try:
            found.append(translated(description, text, columns))
        except ValueError as error:
            raise DeltaTableError(
                f"{state.address} has {description}, and barnabas_delta cannot check it: {error}."
                " Nothing was written. Drop it from the table, or write to the table with Spark and"
                " Delta's jar"
            ) from error
    return tuple(found)


def _expressions(state: TableState, columns: list[Column]) -> Iterator[tuple[str, str]]:
    """Yield description and expression of each constraint; the latter is empty if it has none."""
    for key, text in sorted(state.properties.items()):
        if key.startswith(_CHECK_PREFIX):
            name = key.removeprefix(_CHECK_PREFIX)
            yield f"the CHECK constraint {name} ({text}) of feature checkConstraints", text
    for path, column in all_columns(columns):
        metadata = column["metadata"]
        if _INVARIANTS in metadata:
            text = json.loads(metadata[_INVARIANTS])["expression"]["expression"]
            yield f"the invariant ({text}) of column {path}, of feature invariants", text
        if _TEXT_TYPE in metadata:
            kind = metadata[_TEXT_TYPE]
            found = re.fullmatch(r"varchar\((\d+)\)", kind, re.IGNORECASE)
            # No expression stands for the padding of CHAR(n), or for types inside other types.
            plain = found is not None and column in columns
            text = f"`{path}` is null or length(`{path}`) <= {found[1]}" if found and plain else ""
            yield f"the type {kind} of column {path}", text


def translated(description: str, text: str, columns: list[Column]) -> Constraint:
    """Translate an expression of Spark's SQL.

    Raises:
        ValueError: the expression uses something that DataFusion may evaluate differently.
    """
    words = list(_tokens(text))
    if not words:
        raise ValueError("of the types of texts, only VARCHAR(n) of a whole column is supported")
    used: dict[str, Column] = {}
    written: list[str] = []
    position = 0
    while position < len(words):
        kind, word = words[position]
        following = words[position + 1][1] if position + 1 < len(words) else ""
        position += 1
        if kind != "name":
            written.append(word)
        elif following == "(" and word.lower() in _FUNCTIONS:
            written.append(word.lower())
        elif following != "(" and _is_keyword(word, columns):
            written.append(word.upper())
        elif following == "(" and word.lower() not in _KEYWORDS:
            raise ValueError(f"the function {word} is not supported")
        elif following == "(":
            written.append(word.upper())
        else:
            path, position = _path(words, position - 1)
            column, name = _resolved(path, columns)
            used[column["name"]] = column
            written.append(name)
    if any(kind == "text" for kind, _ in words):
        _refuse_zoned_times(used)
    return Constraint(description, " ".join(written), tuple(used))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            raise ValueError(f"its part {text[position:].strip()!r} is not supported")
        yield found.lastgroup, found[found.lastgroup]
        position = found.end()


def _is_keyword(word: str, columns: list[Column]) -> bool:
    if word.lower() not in _KEYWORDS:
        return False
    if any(each["name"].lower() == word.lower() for each in columns):
        raise ValueError(f"{word} is a keyword and a column")
    return True


def _path(words: list[tuple[str, str]], position: int) -> tuple[list[str], int]:
    """Return the names of a path such as a.b.c, and the position of the token behind it."""
    path = [words[position][1].strip("`")]
    position += 1
    while position + 1 < len(words) and words[position][1] == ".":
        path.append(words[position + 1][1].strip("`"))
        position += 2
    return path, position


def _resolved(path: list[str], columns: list[Column]) -> tuple[Column, str]:
    """Return the column of a path, and the path with the exact names of the table."""
    exact, fields = [], columns
    first: Column | None = None
    for name in path:
        found = next((each for each in fields if each["name"].lower() == name.lower()), None)
        if found is None:
            raise ValueError(f"the table has no column {'.'.join(path)}")
        first = first or found
        exact.append(f"`{found['name']}`")
        kind = found["type"]
        fields = kind["fields"] if isinstance(kind, dict) and kind["type"] == "struct" else []
    assert first is not None
    return first, ".".join(exact)


def _refuse_zoned_times(used: dict[str, Column]) -> None:
    """Refuse a comparison that depends on the time zone of Spark's session."""
    times = [name for name, each in used.items() if contains_type(each["type"], "timestamp")]
    if times:
        raise ValueError(f"a text that stands for the time {times[0]} depends on a time zone")
