"""NOT NULL, CHECK constraints and invariants of a Delta table: translates and checks them.

The table stores an expression as its author wrote it in Spark's SQL. `delta-rs` evaluates
expressions with DataFusion, whose SQL has other rules for some operators and functions: `/` of two
integers is an example. So the translation knows what means the same in both, and refuses the rest.
"""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.spark.delta.columns import Column, all_columns, contains_type
from barnabas.spark.errors import DeltaTableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from barnabas.spark.delta.columns import DeltaType

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
# Names in expressions keep their case, and "a" is a text as in Spark.
_SQL = {
    "datafusion.sql_parser.enable_ident_normalization": "false",
    "datafusion.sql_parser.dialect": "databricks",
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """An expression that must be true for each row; false and NULL violate it."""

    # For messages, with its name and text in the table.
    description: str
    # In DataFusion's SQL; columns are called c0, c1 and so on.
    expression: str
    # These columns, or fields of structs, as paths in the row.
    paths: tuple[tuple[str, ...], ...]
    # Whether the names have the case of the columns, and no text is in double quotes: the MERGE of
    # delta-rs evaluates the untranslated text.
    is_exact: bool


def table_constraints(
    address: str, properties: Mapping[str, str], columns: list[Column]
) -> tuple[Constraint, ...]:
    """Return the constraints of a table.

    Args:
        address: the table, for errors.
        properties: its properties.
        columns: the columns that the table will have when the rows are added.

    Raises:
        DeltaTableError: the sink cannot evaluate an expression.
    """
    found = []
    for description, text in _expressions(properties, columns):
        try:
            found.append(translated(description, text, columns))
        except ValueError as error:
            raise DeltaTableError(
                f"{address} has {description}, and barnabas_delta cannot check it: {error}."
                " Nothing was written. Drop it from the table, or write to the table with Spark and"
                " Delta's jar"
            ) from error
    return tuple(found)


def _expressions(properties: Mapping[str, str], columns: list[Column]) -> Iterator[tuple[str, str]]:
    """Yield description and expression of each constraint; the latter is empty if it has none."""
    for key, text in sorted(properties.items()):
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
    # Path and type of each name of a column.
    used: dict[tuple[str, ...], DeltaType] = {}
    written: list[str] = []
    is_exact = not any(word.startswith('"') for _, word in words)
    position = 0
    while position < len(words):
        kind, word = words[position]
        is_call = [each for _, each in words[position + 1 : position + 2]] == ["("]
        if kind != "name":
            written.append(word)
        elif is_call and word.lower() in _FUNCTIONS:
            written.append(word.lower())
        elif _is_keyword(word, columns, is_call=is_call):
            written.append(word.upper())
        elif is_call:
            raise ValueError(f"the function {word} is not supported")
        else:
            names, position = _path(words, position)
            path, column_type = _resolved(names, columns)
            used.setdefault(path, column_type)
            is_exact = is_exact and tuple(names) == path
            written.append(f"c{list(used).index(path)}")
        position += 1
    _refuse_ambiguous_types(used, has_text=any(kind == "text" for kind, _ in words))
    return Constraint(description, " ".join(written), tuple(used), is_exact)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    if "--" in text:
        raise ValueError("it contains a comment")
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            raise ValueError(f"its part {text[position:].strip()!r} is not supported")
        yield found.lastgroup, found[found.lastgroup]
        position = found.end()


def _is_keyword(word: str, columns: list[Column], *, is_call: bool) -> bool:
    if word.lower() not in _KEYWORDS:
        return False
    if not is_call and any(each["name"].lower() == word.lower() for each in columns):
        raise ValueError(f"{word} is a keyword and a column")
    return True


def _path(words: list[tuple[str, str]], position: int) -> tuple[list[str], int]:
    """Return the names of a path such as a.b.c, and the position of its last name."""
    path = [words[position][1].strip("`")]
    while position + 2 < len(words) and words[position + 1][1] == ".":
        position += 2
        path.append(words[position][1].strip("`"))
    return path, position


def _resolved(names: list[str], columns: list[Column]) -> tuple[tuple[str, ...], DeltaType]:
    """Return a path with the exact names of the table, and its type; Spark ignores their case."""
    exact: list[str] = []
    fields = columns
    kind: DeltaType = ""
    for name in names:
        found = next((each for each in fields if each["name"].lower() == name.lower()), None)
        if found is None:
            raise ValueError(f"the table has no column {'.'.join(names)}")
        exact.append(found["name"])
        kind = found["type"]
        fields = kind["fields"] if isinstance(kind, dict) and kind["type"] == "struct" else []
    return tuple(exact), kind


def _refuse_ambiguous_types(used: dict[tuple[str, ...], DeltaType], *, has_text: bool) -> None:
    """Refuse comparisons of types that DataFusion converts in another way than Spark."""
    times = [".".join(path) for path, kind in used.items() if contains_type(kind, "timestamp")]
    if times and has_text:
        raise ValueError(f"a text that stands for the time {times[0]} depends on a time zone")
    names = [kind for kind in used.values() if isinstance(kind, str)]
    has_fractions = any(name in {"float", "double"} for name in names)
    if has_fractions and any(name.startswith("decimal") for name in names):
        raise ValueError("a comparison of decimal and floating-point columns is not supported")


def check_not_null(batch: pa.RecordBatch, columns: Sequence[Column], address: str) -> None:
    """Refuse rows with nulls where the table allows none, at all depths.

    Raises:
        DeltaTableError: names table, column and number of nulls.
    """
    for column in columns:
        for path, count in _nulls(batch.column(column["name"]), column, column["name"]):
            raise DeltaTableError(
                f"{address}: {path} is NOT NULL, and {count} of {batch.num_rows} rows of a batch"
                f" have no value for it. Nothing was added. Filter these rows, or give them a value"
            )


def _nulls(values: pa.Array, column: Column, path: str) -> Iterator[tuple[str, int]]:
    """Yield the paths of forbidden nulls, and how many there are."""
    if values.null_count and not column["nullable"]:
        yield path, values.null_count
    yield from _inner_nulls(values, column["type"], path)


def _inner_nulls(values: pa.Array, kind: DeltaType, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(kind, str):
        return
    # A null has no fields and elements.
    values = values.drop_null()
    match kind["type"]:
        case "struct":
            for field in kind["fields"]:
                inner = values.field(values.type.get_field_index(field["name"]))
                yield from _nulls(inner, field, f"{path}.{field['name']}")
        case "array":
            element = _unnamed(kind["elementType"], kind["containsNull"])
            yield from _nulls(values.flatten(), element, f"{path}.element")
        case _:
            # `values` may be a slice of a larger array, and `keys` and `items` are not.
            start, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
            keys, items = (
                values.keys.slice(start, end - start),
                values.items.slice(start, end - start),
            )
            yield from _inner_nulls(keys, kind["keyType"], f"{path}.key")
            value = _unnamed(kind["valueType"], kind["valueContainsNull"])
            yield from _nulls(items, value, f"{path}.value")


def _unnamed(kind: DeltaType, nullable: bool) -> Column:
    return {"type": kind, "nullable": nullable}


def check_constraints(
    batch: pa.RecordBatch, constraints: Sequence[Constraint], address: str
) -> None:
    """Refuse rows for which a constraint is not true; `delta-rs` evaluates the constraints.

    Raises:
        DeltaTableError: names table, constraint, number of rows and the values of one row.
    """
    for constraint in constraints:
        count, row = violations(batch, constraint)
        if count:
            raise DeltaTableError(
                f"{address}: {count} of {batch.num_rows} rows of a batch violate"
                f" {constraint.description}, for instance {row}. Nothing was added. Filter or"
                " mend these rows"
            )


def violations(batch: pa.RecordBatch, constraint: Constraint) -> tuple[int, dict[str, Any]]:
    """Return the number of rows for which a constraint is not true, and values of one such row."""
    import pyarrow as pa
    from deltalake import QueryBuilder
    from pyarrow import ipc

    # A constraint without columns is evaluated once for each row too.
    columns = [*(_values(batch, each) for each in constraint.paths), pa.nulls(batch.num_rows)]
    named = pa.RecordBatch.from_arrays(columns, [f"c{index}" for index in range(len(columns))])
    # `delta-rs` takes rows from files only.
    with tempfile.TemporaryDirectory(prefix="barnabas-delta-") as directory:
        path = Path(directory, "rows.arrow")
        with ipc.new_file(path, named.schema) as file:
            file.write_batch(named)
        query = QueryBuilder(_SQL)

        def found(sql: str) -> list[dict[str, Any]]:
            result: list[dict[str, Any]] = pa.table(query.execute(sql).read_all()).to_pylist()
            return result

        location = str(path).replace("'", "''")
        found(f"CREATE EXTERNAL TABLE batch STORED AS ARROW LOCATION '{location}'")
        wrong = f"FROM batch WHERE ({constraint.expression}) IS NOT TRUE"
        [counted] = found(f"SELECT count(*) AS n {wrong}")
        if not counted["n"]:
            return 0, {}
        [row] = found(f"SELECT * {wrong} LIMIT 1")
        names = [".".join(each) for each in constraint.paths]
        return counted["n"], dict(zip(names, row.values(), strict=False))


def _values(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    """Return a column or a field of structs; a field of a null is null."""
    import pyarrow.compute as pc

    column = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if path[1:] else column
