"""Options of upserts, which both table sinks share, and the conditions of `deleteWhen`.

The language of conditions such as `op = 'd'` is a small part of SQL: comparisons of a column with a
value, IN, IS NULL, AND, OR, NOT and parentheses. A boolean column is a condition too. Anything else
can be a column that the query computes with Spark. NULL is neither true nor false, as in SQL.

Spark imports this module in every session while it looks for data sources, so it imports nothing
large.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from barnabas.spark.errors import OptionError
from barnabas.spark.option_table import UPSERT_OPTIONS
from barnabas.spark.tables.rows import arrow_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql.types import StructType

# Column of staged rows: whether the row deletes its key.
DELETED = "__barnabas_deleted"
_KEYS, _SEQUENCE, _DELETE, _EXCEPT = "mergekeys", "sequencecolumn", "deletewhen", "exceptcolumns"
_OPTIONS = {each.name.lower(): each.name for each in UPSERT_OPTIONS}
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?\b)|`(?P<quoted>[^`]+)`"""
    r"""|(?P<word>[^\W\d]\w*)|(?P<sign><=|>=|<>|!=|=|<|>|\(|\)|,))"""
)
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_KEYWORDS = frozenset({"and", "or", "not", "in", "is", "null", "true", "false"})
# Kind of a token (text, number, column, keyword, sign or end) and its value.
_Token = tuple[str, str]


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """The options by which the rows of a batch change the rows of a table."""

    # Columns that identify a row.
    keys: tuple[str, ...]
    # Of several rows with one key, the row with the highest value in this column counts.
    sequence: str | None = None
    # Condition of rows that delete their key.
    delete_when: str | None = None
    # Columns of the rows that the table does not have.
    except_columns: tuple[str, ...] = ()

    @property
    def stored_sequence(self) -> str | None:
        """The sequence column if the table has it."""
        return None if self.sequence in self.except_columns else self.sequence


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """The options of a sink without those of upserts."""

    merge: MergeOptions | None
    others: dict[str, str]
    # Columns of the table.
    stored: StructType


def split_options(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SplitOptions:
    """Take the options of upserts out of the options of a sink, and check them.

    Args:
        options: what the user set; Spark passes the names in lower case.
        schema: the columns of the rows.
        overwrite: whether Spark asks to replace all rows of the table.

    Raises:
        OptionError: an option is wrong, or names a missing column or one of a wrong type.
    """
    from pyspark.sql.types import StructType

    given = {name.lower(): value for name, value in options.items() if name.lower() in _OPTIONS}
    others = {name: value for name, value in options.items() if name.lower() not in _OPTIONS}
    if not given:
        return SplitOptions(None, others, schema)
    merge = _parse(given, schema)
    if overwrite:
        raise OptionError(
            "mergeKeys changes rows by their keys, but output mode complete and mode overwrite"
            " replace all rows: use append, or leave out mergeKeys"
        )
    _check_types(merge, arrow_rows(schema))
    stored = [each for each in schema.fields if each.name not in merge.except_columns]
    return SplitOptions(merge, others, StructType(stored))


def _check_types(merge: MergeOptions, rows: pa.Schema) -> None:
    """Refuse columns that have no equality or order, and conditions that do not fit the rows."""
    import pyarrow as pa

    for name in merge.keys:
        kind = rows.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
            raise OptionError(
                f"mergeKeys names {name} of type {kind}, which has no exact equality: use columns"
                " of integers, decimals, texts, booleans, dates or timestamps"
            )
    if merge.sequence is not None:
        kind = rows.field(merge.sequence).type
        if pa.types.is_nested(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
            raise OptionError(
                f"sequenceColumn names {merge.sequence} of type {kind}, which has no useful order:"
                " use a column of numbers, texts, dates or timestamps"
            )
    if merge.delete_when is not None:
        parse_condition(merge.delete_when, rows)


def _parse(given: Mapping[str, str], schema: StructType) -> MergeOptions:
    columns = schema.fieldNames()
    keys, excepted = _names(given.get(_KEYS, "")), _names(given.get(_EXCEPT, ""))
    if not keys:
        others = [_OPTIONS[name] for name in given if name != _KEYS]
        problem = f"{', '.join(others)} needs mergeKeys" if others else "mergeKeys is empty"
        raise OptionError(f"{problem}: name the columns that identify a row, such as 'id,region'")
    sequence = given.get(_SEQUENCE, "").strip() or None
    sequences = () if sequence is None else (sequence,)
    for option, names in ((_KEYS, keys), (_SEQUENCE, sequences), (_EXCEPT, excepted)):
        missing = [each for each in names if each not in columns]
        if missing:
            raise OptionError(
                f"{_OPTIONS[option]} names {', '.join(missing)}, which the rows do not have; they"
                f" have {', '.join(columns)}"
            )
    both = [each for each in keys if each in excepted]
    if both:
        raise OptionError(f"exceptColumns leaves out {', '.join(both)}, which mergeKeys needs")
    if DELETED in columns:
        raise OptionError(f"the rows have a column {DELETED}: rename it, an upsert uses this name")
    delete_when = given.get(_DELETE, "").strip() or None
    return MergeOptions(keys, sequence, delete_when, excepted)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))


def parse_condition(text: str, schema: pa.Schema) -> pc.Expression:
    """Return the expression of a condition.

    Args:
        text: the condition.
        schema: the columns that it may name.

    Raises:
        OptionError: the condition has another form, or names an unknown column.
    """
    return _Parser(text, schema).parse()


class _Parser:
    """Recursive descent; each method parses one rule of the grammar."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema
        self._tokens = _tokens(text)
        self._next = 0

    def parse(self) -> pc.Expression:
        found = self._disjunction()
        if self._peek() != ("end", ""):
            raise self._error(f"{self._peek()[1]!r} is not expected")
        return found

    def _disjunction(self) -> pc.Expression:
        parts = [self._conjunction()]
        while self._accept("keyword", "or"):
            parts.append(self._conjunction())
        return reduce(operator.or_, parts)

    def _conjunction(self) -> pc.Expression:
        parts = [self._negation()]
        while self._accept("keyword", "and"):
            parts.append(self._negation())
        return reduce(operator.and_, parts)

    def _negation(self) -> pc.Expression:
        if self._accept("keyword", "not"):
            return ~self._negation()
        if self._accept("sign", "("):
            found = self._disjunction()
            self._expect("sign", ")")
            return found
        return self._predicate()

    def _predicate(self) -> pc.Expression:
        import pyarrow as pa
        import pyarrow.compute as pc

        name = self._expect("column")
        if name not in self._schema.names:
            columns = ", ".join(self._schema.names)
            raise self._error(f"the rows have no column {name}; they have {columns}")
        column, kind = pc.field(name), self._schema.field(name).type
        if self._accept("keyword", "is"):
            is_negated = self._accept("keyword", "not")
            self._expect("keyword", "null")
            return ~column.is_null() if is_negated else column.is_null()
        is_negated = self._accept("keyword", "not")
        if self._accept("keyword", "in"):
            # `isin` of pyarrow is false for NULL, and its negation would be true.
            found = reduce(operator.or_, [column == value for value in self._values(kind)])
            return ~found if is_negated else found
        if is_negated:
            raise self._error("IN is missing after NOT")
        form, sign = self._peek()
        if form == "sign" and sign in _COMPARISONS:
            self._next += 1
            return _COMPARISONS[sign](column, self._value(kind))
        if not pa.types.is_boolean(kind):
            raise self._error(f"a comparison is missing after {name}, which is no boolean column")
        return column

    def _values(self, kind: pa.DataType) -> list[pa.Scalar]:
        self._expect("sign", "(")
        values = [self._value(kind)]
        while self._accept("sign", ","):
            values.append(self._value(kind))
        self._expect("sign", ")")
        return values

    def _value(self, kind: pa.DataType) -> pa.Scalar:
        """Parse a value, and convert it to the type of its column."""
        import pyarrow as pa

        form, value = self._peek()
        if form == "text":
            scalar = pa.scalar(value)
        elif form == "number":
            scalar = pa.scalar(float(value) if "." in value else int(value))
        elif (form, value) in {("keyword", "true"), ("keyword", "false")}:
            scalar = pa.scalar(value == "true")
        else:
            raise self._error(f"a value is missing before {value!r}: a 'text', number or boolean")
        self._next += 1
        if pa.types.is_string(scalar.type) and pa.types.is_integer(kind):
            raise self._error(f"'{value}' is a text, and its column has the type {kind}")
        try:
            return scalar.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._error(f"{value} does not fit the type {kind} of its column") from error

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _accept(self, kind: str, value: str) -> bool:
        if self._peek() != (kind, value):
            return False
        self._next += 1
        return True

    def _expect(self, kind: str, value: str | None = None) -> str:
        form, found = self._peek()
        if form != kind or value not in {None, found}:
            raise self._error(f"{value or f'a {kind}'} is missing before {found or 'the end'!r}")
        self._next += 1
        return found

    def _error(self, problem: str) -> OptionError:
        return OptionError(
            f"deleteWhen is {self._text!r}: {problem}. Write comparisons of columns with values,"
            " such as op = 'd' OR amount IS NULL, or the name of a boolean column"
        )


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise OptionError(f"deleteWhen is {text!r}: {text[position:].strip()!r} is unknown")
        position = match.end()
        kind = match.lastgroup or ""
        value = match[kind]
        match kind:
            case "text":
                found.append(("text", value[1:-1].replace("''", "'")))
            case "word" if value.lower() in _KEYWORDS:
                found.append(("keyword", value.lower()))
            case "word" | "quoted":
                found.append(("column", value))
            case _:
                found.append((kind, value))
    return [*found, ("end", "")]
