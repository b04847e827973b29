"""Lists of a console as tables: the fields of the address sort, filter and cut them into pages.

A table needs no script. Its headers are links that sort, a form filters, and another form chooses
the columns. The address has all of it, so that a bookmark shows the same table again:

- `sort`: key of the column, with "-" before it for the largest values first;
- `q`: words that the text of a row has to contain;
- `cols`: keys of the shown columns;
- `page`: from 1.

A page with two tables gives one of them a prefix for these names. `templates/tables.html` has the
macros that show a table. On a page that a form was sent for, the headers are buttons that send the
form again, to an address with these fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from barnabas.cli.why.reasons import duration
from barnabas.console.formats import moment, name_class, number, rate, signed, size
from barnabas.console.frame import frame_of
from barnabas.console.rendering import paged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

T = TypeVar("T")

# How a column shows and sorts its values; "" if the template shows the cell itself.
Kind: TypeAlias = Literal[
    "",
    "text",
    "name",
    "mono",
    "number",
    "id",
    "ids",
    "change",
    "size",
    "speed",
    "rate",
    "moment",
    "age",
]


class _Format(NamedTuple):
    """How the values of a kind are shown."""

    show: Callable[[Any], str]
    # Whether the cells are numbers, which stand at the right.
    is_numeric: bool = False
    # Style class of the cells; "" if it depends on the length of the text.
    style: str = ""


_FORMATS: dict[str, _Format] = {
    "text": _Format(str),
    "name": _Format(str),
    "mono": _Format(str, style="mono"),
    "number": _Format(number, is_numeric=True),
    # Of a broker or a producer: without spaces between thousands.
    "id": _Format(str, is_numeric=True),
    # Several of them: a sequence.
    "ids": _Format(lambda value: ", ".join(map(str, value))),
    # The difference of two numbers.
    "change": _Format(signed, is_numeric=True),
    "size": _Format(size, is_numeric=True),
    "speed": _Format(lambda value: f"{size(value)}/s", is_numeric=True),
    "rate": _Format(rate, is_numeric=True),
    # Milliseconds since 1970.
    "moment": _Format(moment, style="moment"),
    # Milliseconds.
    "age": _Format(duration, is_numeric=True),
}


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of a table.

    Args:
        key: Name in the address and in the template.
        label: Header.
        value: Returns the value of a row, for sorting, and for showing if there is a kind. None:
            the table cannot be sorted by the column.
        kind: How the value is shown; None and "" are shown as `absent`.
        numeric: Whether the cells are numbers, for columns without a kind.
        is_shown: Whether the column is shown unless the address chooses columns.
        hint: Explains the header.
        style: Style class of the cells, for columns without a kind.
        absent: The text of a cell without a value.
    """

    key: str
    label: str
    value: Callable[[T], Any] | None = None
    kind: Kind = ""
    numeric: bool = False
    is_shown: bool = True
    hint: str = ""
    style: str = ""
    absent: str = "–"

    @property
    def is_numeric(self) -> bool:
        """Whether the cells are numbers, which stand at the right."""
        return self.numeric or (self.kind != "" and _FORMATS[self.kind].is_numeric)

    def shown(self, row: T) -> str:
        """Return the text of the cell of a row, for columns with a kind."""
        assert self.value is not None, self.key
        value = self.value(row)
        return self.absent if value is None or value == "" else _FORMATS[self.kind].show(value)

    def cell_class(self, row: T) -> str:
        """Return the style classes of the cell of a row."""
        if self.is_numeric:
            return "n"
        style = _FORMATS[self.kind].style if self.kind else self.style
        if style:
            return style
        return name_class(str(self.value(row))) if self.value is not None else ""


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
    """One page of the rows, and what the macros need for links and forms."""

    # All columns, and those that are shown.
    all_columns: Sequence[Column[T]]
    columns: Sequence[Column[T]]
    rows: Sequence[T]
    # This page and the last one, counted from 1.
    number: int
    last: int
    # Rows that match the filter, and all rows.
    total: int
    total_unfiltered: int
    # Key of the column by which the rows are sorted; "" if they have the order of the page.
    sort: str
    is_descending: bool
    query: str
    can_filter: bool
    # Address of the page, without the prefix of a cluster.
    path: str
    # Fields of the address.
    fields: dict[str, str]
    prefix: str = ""
    # Id of the form that headers send again; "" if they are links.
    form: str = ""

    def field(self, name: str) -> str:
        """Return the name of a field of this table in the address."""
        return self.prefix + name

    def sorted_by(self, column: Column[T]) -> dict[str, str]:
        """Return the fields of the address that sorts by a column.

        The first click on a number shows the largest values; a second click turns the order.
        """
        is_descending = column.is_numeric
        if column.key == self.sort:
            is_descending = not self.is_descending
        return self._changed(sort=("-" if is_descending else "") + column.key, page=None)

    @property
    def is_asked(self) -> bool:
        """Whether the address has a field of this table, so that it is not folded away."""
        return any(self.field(name) in self.fields for name in ("sort", "q", "cols", "page"))

    def on_page(self, number: int) -> dict[str, str]:
        """Return the fields of the address of another page of the table."""
        return self._changed(page=str(number))

    def unfiltered(self) -> dict[str, str]:
        """Return the fields of the address without the filter."""
        return self._changed(q=None, page=None)

    def kept(self, *names: str) -> dict[str, str]:
        """Return the fields that a form keeps, without those of these names and the page."""
        gone = {self.field(name) for name in (*names, "page")} | set(names)
        return {key: value for key, value in self.fields.items() if key not in gone}

    def order_of(self, column: Column[T]) -> str:
        """Return the value of `aria-sort` of a column; "" if the rows are sorted by another."""
        if column.key != self.sort:
            return ""
        return "descending" if self.is_descending else "ascending"

    def _changed(self, **changes: str | None) -> dict[str, str]:
        own = {self.field(key): value for key, value in changes.items()}
        merged = {**self.fields, **own}
        return {key: value for key, value in merged.items() if value is not None}


def columns_of(*specs: str | tuple[str, Kind] | tuple[str, Kind, str]) -> list[Column[Any]]:
    """Return the columns of rows that are tuples.

    Args:
        specs: For each place in the tuples the header, with the kind of the values and the text of
            a cell without a value. A header alone is that of texts.
    """
    found: list[Column[Any]] = []
    for index, spec in enumerate(specs):
        label, kind, absent, *_ = (spec, "text", "–") if isinstance(spec, str) else (*spec, "–")
        found.append(Column(f"{index}", label, itemgetter(index), kind, absent=absent))
    return found


def tabulate(
    request: Request,
    columns: Sequence[Column[T]],
    rows: Sequence[T],
    *,
    text: Callable[[T], str] | None = None,
    sort: str = "",
    prefix: str = "",
) -> Table[T]:
    """Return the table that the address of a request asks for.

    Args:
        request: The request for the page.
        columns: All columns; the first one names the row and is always shown.
        rows: All rows.
        text: Returns the text of a row in which the filter looks; None: there is no filter.
        sort: How the rows are sorted unless the address says it, such as "name" or "-size".
        prefix: Prefix of the table's fields in the address.
    """
    pairs = parse_qsl(request.url.query, keep_blank_values=True)
    fields = dict(pairs)
    chosen = [value for key, value in pairs if key == prefix + "cols"]
    shown = _shown(columns, chosen)
    if chosen:
        fields[prefix + "cols"] = ",".join(each.key for each in shown)
    query = fields.get(prefix + "q", "").strip()
    found = rows if text is None else matching(rows, text, query)
    by, is_descending = _order(columns, fields.get(prefix + "sort", ""), sort)
    page = paged(_sorted(found, by, is_descending), _page_number(fields.get(prefix + "page")))
    return Table(
        all_columns=columns,
        columns=shown,
        rows=page.rows,
        number=page.number,
        last=page.last,
        total=page.total,
        total_unfiltered=len(rows),
        sort=by.key if by else "",
        is_descending=is_descending,
        query=query,
        can_filter=text is not None,
        path=frame_of(request).path(request),
        fields=fields,
        prefix=prefix,
    )


def _shown(columns: Sequence[Column[T]], chosen: Sequence[str]) -> list[Column[T]]:
    if not chosen:
        return [each for each in columns if each.is_shown]
    keys = {key for value in chosen for key in value.split(",")}
    return [each for each in columns if each is columns[0] or each.key in keys]


def matching(rows: Sequence[T], text: Callable[[T], str], query: str) -> Sequence[T]:
    """Return the rows whose text has all words of the query, in any case."""
    words = query.casefold().split()
    if not words:
        return rows
    found = ((row, text(row).casefold()) for row in rows)
    return [row for row, own in found if all(word in own for word in words)]


def _order(columns: Sequence[Column[T]], asked: str, default: str) -> tuple[Column[T] | None, bool]:
    for wanted in (asked, default):
        key = wanted.removeprefix("-")
        for column in columns:
            if column.key == key and column.value is not None:
                return column, wanted.startswith("-")
    return None, False


def _sorted(rows: Sequence[T], by: Column[T] | None, is_descending: bool) -> Sequence[T]:
    """Return the rows in order; rows without a value come last in both directions."""
    if by is None or by.value is None:
        return rows
    values = map(by.value, rows)
    return in_order(
        rows,
        [value.casefold() if isinstance(value, str) else value for value in values],
        is_descending=is_descending,
    )


def in_order(rows: Sequence[T], values: Sequence[Any], *, is_descending: bool) -> list[T]:
    """Return rows in the order of their values; those of None come last in both directions."""
    valued = [index for index, value in enumerate(values) if value is not None]
    valued.sort(key=values.__getitem__, reverse=is_descending)
    without = [index for index, value in enumerate(values) if value is None]
    return [rows[index] for index in chain(valued, without)]


def _page_number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 1
