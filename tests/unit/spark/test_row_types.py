"""Types that Arrow would turn into structs in silence are refused by the sinks for tables."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    GeographyType,
    GeometryType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from barnabas.spark.delta.writer import row_columns
from barnabas.spark.errors import OptionError
from barnabas.spark.iceberg.writer import row_schema


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (VariantType(), "variant"),
        (GeometryType(4326), "geometry"),
        (GeographyType(4326), "geography"),
        (ArrayType(VariantType()), "variant"),
        (MapType(StringType(), VariantType()), "variant"),
        (StructType([StructField("x", VariantType())]), "variant"),
    ],
)
def test_the_column_and_its_type_are_named(kind: DataType, name: str) -> None:
    schema = StructType([StructField("id", IntegerType()), StructField("v", kind)])
    message = f"cannot store these columns: v contains {name}"
    with pytest.raises(OptionError, match=f"barnabas_iceberg {message}"):
        row_schema(schema)
    with pytest.raises(OptionError, match=f"barnabas_delta {message}"):
        row_columns(schema)
