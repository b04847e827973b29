"""Columns of a list of messages: parts of a record, and paths into JSON keys, values and headers.

The address has the columns with commas between them: `time,key,value.customer.id,headers.trace`.
A path has members as `.name` or `["any text"]`, and elements of lists as `[0]`; `[-1]` is the last.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from barnabas.console.forms import FormError
from barnabas.console.tables import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.console.messages.record_view import DecodedRecord, ShownMessage

# Columns that the list shows by itself, in this order. The place (partition and offset) is always
# shown.
PLAIN = (
    "time", "timestamp", "partition", "offset", "size", "key", "value", "headers", "transaction"
)  # fmt: skip
DEFAULT = "time,key,value"
# The first column of each list: partition and offset.
PLACE = "place"
_ROOTS = ("key", "value", "headers")
_COLUMNS_MAX = 20
_SUGGESTED_MAX = 30
_SUGGESTED_DEPTH = 2
_CELL_CHARACTERS = 500

_STEP = re.compile(r'\.([^.\[\],"\s]+)|\[(-?\d{1,6})\]|\["((?:[^"\\]|\\.){0,200})"\]', re.ASCII)
_NAME = re.compile(r"[a-z]+")
_PLAIN_NAME = re.compile(r'[^.\[\],"\s]+')

_MISSING: Any = object()


class Cell(NamedTuple):
    """The value at a path."""

    # "missing", "null", "json", "number" or "text".
    kind: str
    text: str
    is_cut: bool = False

    @property
    def order(self) -> tuple[Any, ...] | None:
        """What rows are sorted by: numbers before texts; None for a missing value."""
        if self.kind == "number" and self.text != "null":
            return (0, msgspec.json.decode(self.text))
        return None if self.kind in ("missing", "null", "number") else (1, self.text.casefold())


class Column(NamedTuple):
    """A column."""

    # As the address has it.
    name: str
    # One of PLAIN, or one of _ROOTS with a path.
    root: str
    path: tuple[str | int, ...] = ()

    def content(self, record: DecodedRecord) -> Any:
        """Return the content of a column with a path; a mark for a missing member."""
        path: Sequence[str | int] = self.path
        if self.root == "headers":
            first, *path = path
            found = next((value for name, value in record.headers if name == first), None)
            content: Any = _MISSING if found is None else found.content
        else:
            content = (record.key if self.root == "key" else record.value).content
        for step in path:
            content = _member(content, step)
        return content

    def cell(self, record: DecodedRecord) -> Cell:
        """Return what a page shows for a column with a path."""
        return _cell(self.content(record))

    def order(self, row: Row) -> tuple[Any, ...] | None:
        """Return what a row is sorted by: numbers before texts; None for a row without a value."""
        message = row.message
        if self.path:
            return row.cells[self.name].order
        match self.root:
            case "size":
                return (0, row.size)
            case "partition" | "offset":
                return (0, getattr(message, self.root))
            case "time" | "timestamp":
                return (0, message.timestamp)
            case "transaction":
                return None if message.fate == "none" else (1, message.fate)
            case "headers":
                return (1, [(name, value.text) for name, value in message.headers])
        shown = message.key if self.root == "key" else message.value
        return None if shown.kind == "null" else (1, shown.text.casefold())

    def exported(self, record: DecodedRecord) -> Any:
        """Return what a download has for a column with a path: a JSON value, None if missing."""
        content = self.content(record)
        if content is _MISSING:
            return None
        return content.hex() if isinstance(content, bytes) else content


class Row(NamedTuple):
    """A message of the list."""

    message: ShownMessage
    size: int
    # The columns with paths, by their names.
    cells: dict[str, Cell]


def row_of(record: DecodedRecord, columns: Sequence[Column]) -> Row:
    """Return a row of the list."""
    cells = {column.name: column.cell(record) for column in columns if column.path}
    return Row(record.shown(), record.size, cells)


class Order(NamedTuple):
    """How the found messages are sorted; without a name, they have the order of the search."""

    # A column, or `PLACE`.
    name: str = ""
    is_descending: bool = False

    @classmethod
    def of(cls, text: str) -> Order:
        """Parse a field of an address: the name, with "-" before it for the largest first."""
        return cls(text.removeprefix("-"), text.startswith("-"))

    def sort(self, rows: Sequence[Row], columns: Sequence[Column]) -> Sequence[Row]:
        """Return rows in this order; those without a value come last in both directions."""
        column = next((each for each in columns if each.name == self.name), None)
        if self.name == PLACE:
            orders: list[Any] = [(row.message.partition, row.message.offset) for row in rows]
        elif column is None:
            return rows
        else:
            orders = [column.order(row) for row in rows]
        return in_order(rows, orders, is_descending=self.is_descending)

    def after(self, name: str) -> str:
        """Return the address's field for the header of a column: up, down, and as it was found."""
        if name != self.name:
            return name
        return "" if self.is_descending else f"-{name}"

    def aria(self, name: str) -> str:
        """Return the value of `aria-sort` for the header of a column; "" for none."""
        if name != self.name:
            return ""
        return "descending" if self.is_descending else "ascending"


def parse_columns(text: str) -> list[Column]:
    """Parse the columns of an address; each is kept once.

    Raises:
        FormError: A column is malformed; the text says which one.
    """
    found: dict[str, Column] = {}
    place = 0
    while place < len(text):
        if text[place] in ", ":
            place += 1
            continue
        column, place = _parse_column(text, place)
        found[column.name] = column
        if len(found) > _COLUMNS_MAX:
            raise FormError(f"there can be at most {_COLUMNS_MAX} columns")
    return list(found.values())


def _parse_column(text: str, start: int) -> tuple[Column, int]:
    """Return the column that begins at a place of the text, and the place behind it."""
    root = _NAME.match(text, start)
    place = start if root is None else root.end()
    path: list[str | int] = []
    while (step := _STEP.match(text, place)) is not None:
        member, index, quoted = step.groups()
        if index is not None:
            path.append(int(index))
        else:
            path.append(re.sub(r"\\(.)", r"\1", quoted) if member is None else member)
        place = step.end()
    is_known = root is not None and root[0] in (_ROOTS if path else PLAIN)
    if root is None or not is_known or (place < len(text) and text[place] not in ", "):
        wrong = text[start:].split(",", maxsplit=1)[0].strip()
        raise FormError(
            f"there is no column {wrong!r}: write one of {', '.join(PLAIN)}, "
            'or a path such as value.customer.id, value.items[0] or headers["trace id"]'
        )
    if root[0] == "headers" and path and isinstance(path[0], int):
        raise FormError("a header has a name: write for example headers.trace")
    return Column(text[start:place], root[0], tuple(path)), place


def _member(content: Any, step: str | int) -> Any:
    if isinstance(step, int):
        if isinstance(content, list) and -len(content) <= step < len(content):
            return content[step]
        return _MISSING
    return content.get(step, _MISSING) if isinstance(content, dict) else _MISSING


def _cell(content: Any) -> Cell:
    if content is _MISSING:
        return Cell("missing", "–")
    match content:
        case None:
            return Cell("null", "null")
        case bool():
            kind, text = "json", "true" if content else "false"
        case int() | float():
            kind, text = "number", msgspec.json.encode(content).decode()
        case str():
            kind, text = "text", content
        case bytes():
            kind, text = "text", content[:_CELL_CHARACTERS].hex(" ")
        case _:
            encoded = msgspec.json.encode(content)
            kind, text = "json", msgspec.json.format(encoded, indent=0).decode()
    return Cell(kind, text[:_CELL_CHARACTERS], len(text) > _CELL_CHARACTERS)


class Suggestions:
    """Paths that the reader may want as columns: those of the first messages found."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def add(self, record: DecodedRecord) -> None:
        """Add the paths of a record."""
        if len(self.names) >= _SUGGESTED_MAX:
            return
        headers = {name: None for name, _ in record.headers}
        parts = (("key", record.key.content), ("value", record.value.content), ("headers", headers))
        for root, content in parts:
            for name in _paths(root, content, _SUGGESTED_DEPTH):
                if name not in self.names and len(self.names) < _SUGGESTED_MAX:
                    self.names.append(name)


def _paths(prefix: str, content: Any, depth: int) -> Iterator[str]:
    """Yield the paths below an object; an object at the last level is one column."""
    if not isinstance(content, dict):
        return
    for name, value in list(content.items())[:_SUGGESTED_MAX]:
        text = str(name)
        if _PLAIN_NAME.fullmatch(text):
            path = f"{prefix}.{text}"
        else:
            escaped = re.sub(r'(["\\])', r"\\\1", text)
            path = f'{prefix}["{escaped}"]'
        if isinstance(value, dict) and value and depth > 1:
            yield from _paths(path, value, depth - 1)
        else:
            yield path
