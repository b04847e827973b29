"""Options of upserts, which both table sinks share.

Spark imports this module in every session while it looks for data sources, so it imports nothing
large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.errors import OptionError
from barnabas.spark.row_types import arrow_rows
from barnabas.spark.table_option_lists import UPSERT_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

# Column of staged rows: whether the row deletes its key.
DELETED = "__barnabas_deleted"
_KEYS, _SEQUENCE, _DELETE, _EXCEPT = "mergekeys", "sequencecolumn", "deletewhen", "exceptcolumns"
_OPTIONS = {each.name.lower(): each.name for each in UPSERT_OPTIONS}


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """How the rows of a batch change the rows of the table."""

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

    from barnabas.spark.merging.conditions import parse_condition

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
