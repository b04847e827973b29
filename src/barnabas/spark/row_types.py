"""Types of rows that the sinks for Delta and for Iceberg share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

# By the name that Spark gives the type.
_WITHOUT_STRUCT = ("variant", "geometry", "geography")


def refuse_disguised_types(schema: StructType, sink: str) -> None:
    """Refuse columns that Arrow turns into structs of binary.

    Args:
        schema: the columns of the rows.
        sink: name of the sink, for the message.

    Raises:
        OptionError: names the columns and their types.
    """
    wrong = [
        f"{field.name} contains {name}"
        for field in schema.fields
        for name in _disguised(field.dataType)
    ]
    if wrong:
        raise OptionError(
            f"{sink} cannot store these columns: {'; '.join(wrong)}. Convert them, for instance"
            " with to_json(column) or CAST(column AS STRING)"
        )


def _disguised(kind: DataType) -> list[str]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case StructType():
            return [name for field in kind.fields for name in _disguised(field.dataType)]
        case ArrayType():
            return _disguised(kind.elementType)
        case MapType():
            return [*_disguised(kind.keyType), *_disguised(kind.valueType)]
        case _:
            return [name for name in _WITHOUT_STRUCT if kind.typeName() == name]


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
