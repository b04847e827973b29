"""Types of rows that the sinks for Delta and for Iceberg share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

# The types that tables of both kinds store, by Spark's names.
_STORED = frozenset(
    {
        "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string",
        "binary", "date", "timestamp", "timestamp_ntz",
    }
)  # fmt: skip
_NULL = "void"


def stored_schema(schema: StructType, sink: str, *, accepts_null: bool = False) -> pa.Schema:
    """Convert the columns of the rows to Arrow, as `arrow_rows` does; refuse unfit types.

    Arrow would turn variants and geometries into structs of binary.

    Args:
        schema: the columns of the rows.
        sink: name of the sink, for the message.
        accepts_null: whether the sink has its own answer to columns of `SELECT NULL`.

    Raises:
        OptionError: a table cannot store a type; names the columns and their types.
    """
    stored = _STORED | {_NULL} if accepts_null else _STORED
    wrong = [
        f"{path} is {name}"
        for field in schema.fields
        for path, name in _unfit(field.dataType, field.name, stored)
    ]
    if wrong:
        raise OptionError(
            f"{sink} cannot store these columns: {'; '.join(wrong)}. Convert them, for instance"
            " with CAST(column AS STRING), or with to_json(column) for variants"
        )
    return arrow_rows(schema)


def _unfit(kind: DataType, path: str, stored: frozenset[str]) -> list[tuple[str, str]]:
    """Return path and name of each type inside a type that no table stores."""
    from pyspark.sql.types import ArrayType, MapType, StructType, UserDefinedType

    match kind:
        case StructType() if kind.fields:
            inner = [(each.dataType, f"{path}.{each.name}") for each in kind.fields]
        case ArrayType():
            inner = [(kind.elementType, f"{path}.element")]
        case MapType():
            inner = [(kind.keyType, f"{path}.key"), (kind.valueType, f"{path}.value")]
        case UserDefinedType():
            inner = [(kind.sqlType(), path)]
        case _:
            return [] if kind.typeName() in stored else [(path, kind.simpleString())]
    return [found for each, where in inner for found in _unfit(each, where, stored)]


def arrow_rows(schema: StructType) -> pa.Schema:
    """Convert the columns of the rows to Arrow: timestamps are UTC, in microseconds.

    Raises:
        OptionError: Arrow has no type for a column, so Spark cannot hand the rows to Python.
    """
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    wrong = []
    for field in schema.fields:
        try:
            to_arrow_schema(StructType([field]), timezone="UTC")
        except PySparkTypeError:
            wrong.append(f"{field.name} is {field.dataType.simpleString()}")
    if wrong:
        raise OptionError(
            f"Spark cannot hand these columns to a sink in Python: {'; '.join(wrong)}. Convert"
            " them, for instance with CAST(column AS STRING)"
        )
    return to_arrow_schema(schema, timezone="UTC")


def optional_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns with nulls allowed at all depths, except for keys of maps.

    Spark knows of some columns that their rows have no nulls, such as `count(*)`. A later query may
    have others. Metadata of the columns is left out.
    """
    import pyarrow as pa

    return pa.schema([_optional_field(each) for each in schema])


def _optional_field(field: pa.Field) -> pa.Field:
    import pyarrow as pa

    return pa.field(field.name, _optional_type(field.type))


def _optional_type(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([_optional_field(each) for each in kind.fields])
    if pa.types.is_list(kind):
        return pa.list_(_optional_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_optional_type(kind.key_type), _optional_field(kind.item_field))
    return kind
