"""Partitions of Iceberg tables: their transforms as text, and the partitions of rows.

Spark looks at options in every session, so `pyiceberg` is imported only where it is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa
    from pyiceberg.partitioning import PartitionField, PartitionKey, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.typedef import Record
    from pyiceberg.types import StructType

IDENTITY = "identity"
# A transform of a partition that was removed from the table; its values are null.
VOID = "void"
_TIMES = ("year", "month", "day", "hour")
_WITH_WIDTH = ("bucket", "truncate")
# A comma that is not between parentheses.
_COMMA = re.compile(r",(?![^(]*\))")
# As in day(time), bucket(16, id).
_CALL = re.compile(r"(\w+)\((?:\s*(\d+)\s*,)?([^()]+)\)")


@dataclass(frozen=True, slots=True)
class PartitionTerm:
    """One term by which a table is partitioned: a column, or a transform of it."""

    column: str
    # As Iceberg's specification writes it: identity, day, bucket[16].
    transform: str = IDENTITY

    def __str__(self) -> str:
        """Return the term as the option of the sink has it."""
        if self.transform == IDENTITY:
            return self.column
        name, _, width = self.transform.removesuffix("]").partition("[")
        return f"{name}({width}, {self.column})" if width else f"{name}({self.column})"

    @property
    def is_known(self) -> bool:
        """Whether the sink can place rows by this transform."""
        name, _, width = self.transform.partition("[")
        return name in _WITH_WIDTH if width else name in (IDENTITY, VOID, *_TIMES)


def parse_terms(text: str, columns: Collection[str]) -> tuple[PartitionTerm, ...]:
    """Read the option `partitionColumns`.

    Args:
        text: terms that are separated by commas.
        columns: the columns of the rows.

    Raises:
        OptionError: a transform or a column is unknown.
    """
    terms = tuple(_parse_term(each.strip()) for each in _COMMA.split(text) if each.strip())
    missing = [each.column for each in terms if each.column not in columns]
    if missing:
        raise OptionError(
            f"partitionColumns names {', '.join(missing)}, which the rows do not have; they have "
            f"{', '.join(columns)}"
        )
    return terms


def _parse_term(text: str) -> PartitionTerm:
    if "(" not in text:
        return PartitionTerm(text)
    call = _CALL.fullmatch(text)
    if call is not None:
        name, width, column = call[1].lower(), call[2], call[3].strip()
        # Spark's functions are in the plural.
        if width is None and name.removesuffix("s") in _TIMES:
            return PartitionTerm(column, name.removesuffix("s"))
        if width is None and name == IDENTITY:
            return PartitionTerm(column)
        if name in _WITH_WIDTH and int(width or 0):
            return PartitionTerm(column, f"{name}[{int(width)}]")
    raise OptionError(
        f"partitionColumns has {text!r}: a term is a column, year(column), month(column),"
        " day(column), hour(column), bucket(16, column) or truncate(4, column)"
    )


def partition_terms(schema: Schema, spec: PartitionSpec) -> tuple[PartitionTerm, ...]:
    """Return what a table is partitioned by."""
    return tuple(
        PartitionTerm(schema.find_column_name(each.source_id) or "", str(each.transform))
        for each in spec.fields
    )


class RowPartitions:
    """Finds the partitions of rows that have the columns of a table."""

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        self._schema = schema
        self._fields = spec.fields

    def keys(self, batch: pa.RecordBatch) -> Sequence[pa.Array]:
        """Return a column for each field of the partitions: its transform of the rows' values."""
        return [self._key(field, batch) for field in self._fields]

    def record(self, values: tuple[Any, ...]) -> Record:
        """Return the partition with these keys, as a table's metadata stores it."""
        from pyiceberg.partitioning import partition_record_value
        from pyiceberg.typedef import Record

        return Record(
            *(
                partition_record_value(field, value, self._schema)
                if str(field.transform) == IDENTITY
                else value
                for field, value in zip(self._fields, values, strict=True)
            )
        )

    def _key(self, field: PartitionField, batch: pa.RecordBatch) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        name = str(field.transform)
        if name == VOID:
            return pa.nulls(batch.num_rows, pa.int32())
        top, *inner = _path(self._schema.as_struct(), field.source_id)
        column = batch.column(top)
        if inner:
            column = pc.struct_field(column, inner)
        if name == IDENTITY:
            return column
        if name in _TIMES:
            return _periods(name, column)
        # A function in Python: call it for each distinct value only.
        encoded = column.dictionary_encode()
        change = field.transform.transform(self._schema.find_type(field.source_id))
        changed = [change(value) for value in encoded.dictionary.to_pylist()]
        return pa.array(changed, _changed_type(name, column.type)).take(encoded.indices)


def _path(struct: StructType, field_id: int) -> list[int]:
    """Return the positions that lead to a field, which may be within other fields."""
    from pyiceberg.types import StructType

    for index, field in enumerate(struct.fields):
        if field.field_id == field_id:
            return [index]
        if isinstance(field.field_type, StructType):
            found = _path(field.field_type, field_id)
            if found:
                return [index, *found]
    return []


def _periods(period: str, times: pa.Array) -> pa.Array:
    """Return how many years, months, days or hours are between the epoch and dates or times."""
    import pyarrow as pa
    import pyarrow.compute as pc

    epoch = pa.scalar(0, times.type)
    match period:
        case "hour":
            return pc.hours_between(epoch, times)
        case "day":
            return pc.days_between(epoch, times)
        case "month":
            months = pc.multiply(pc.years_between(epoch, times), 12)
            return pc.add(months, pc.subtract(pc.month(times), 1))
        case _:
            return pc.years_between(epoch, times)


def _changed_type(transform: str, source: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if transform.startswith("bucket"):
        return pa.int32()
    # The next smaller multiple of a negative decimal can have another digit.
    return pa.decimal128(38, source.scale) if pa.types.is_decimal(source) else source


def partition_key(schema: Schema, spec: PartitionSpec, record: Record) -> PartitionKey | None:
    """Return the key of a partition; None for a table without partitions."""
    from pyiceberg.partitioning import PartitionKey

    if not spec.fields:
        return None
    key = PartitionKey([], spec, schema)
    # `PartitionKey` would make the record from values of columns, and of each column only once.
    vars(key)["partition"] = record
    return key
