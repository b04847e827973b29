"""Types of Spark that tables cannot store, although Arrow would make structs of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
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
