"""The option `valueFormat=avro`: the column `value` has the fields of the records.

The schema of the column is fixed when a query is planned: `valueSchema`, or the latest schema of
the topic's subject. Records of other versions are converted to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from barnabas.serializers.registry import SchemaRegistry

__all__ = ["ValueColumn", "ValueFormat", "column_type", "parse_value_format", "resolve"]

_NEEDING_A_FORMAT = {
    "registry": "registry",
    "registryuser": "registryUser",
    "registrypassword": "registryPassword",
    "registrycafile": "registryCaFile",
    "valueschema": "valueSchema",
    "valueerrors": "valueErrors",
}


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """How values are decoded; plain values, because Spark pickles them for its workers."""

    registry: str
    # The JSON of the column's schema; "" until `resolve` has found it.
    schema: str = ""
    # The topic whose latest schema is used; "" if the option gives the schema.
    topic: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""
    # Whether a record that cannot be decoded has a null value.
    null_on_error: bool = False


def parse_value_format(options: Mapping[str, str], topics: tuple[str, ...]) -> ValueFormat | None:
    """Return the format of values; None for bytes.

    Args:
        options: The options, with names in lower case.
        topics: The topics that are read; empty if a pattern selects them.

    Raises:
        OptionError: An option is wrong or missing.
    """
    name = options.get("valueformat", "binary").strip().lower()
    if name not in ("binary", "avro"):
        raise OptionError(f"valueFormat={name!r}; expected 'binary' or 'avro'")
    if name == "binary":
        for key, option in _NEEDING_A_FORMAT.items():
            if key in options:
                raise OptionError(f"{option} has no meaning without valueFormat=avro")
        return None
    registry = options.get("registry", "").strip()
    if not registry:
        raise OptionError("valueFormat=avro needs registry: give the URL of the schema registry")
    errors = options.get("valueerrors", "fail").lower()
    if errors not in ("fail", "null"):
        raise OptionError(f"valueErrors={errors!r}; expected 'fail' or 'null'")
    schema = options.get("valueschema", "").strip()
    if not schema and len(topics) != 1:
        raise OptionError(
            "valueFormat=avro with several topics needs valueSchema: give the schema of the column"
        )
    return ValueFormat(
        registry,
        schema,
        "" if schema else topics[0],
        options.get("registryuser", ""),
        options.get("registrypassword", ""),
        options.get("registrycafile", ""),
        errors == "null",
    )


def resolve(given: ValueFormat) -> ValueFormat:
    """Return the format with the schema of the column. This may ask the registry.

    Raises:
        OptionError: The registry has no schema of the topic, was not reached, or the packages of
            the extra are missing.
    """
    if given.schema:
        return given
    from barnabas.serializers.errors import RegistryError, SchemaError

    subject = f"{given.topic}-value"
    try:
        from barnabas.serializers.avro.arrow import plain_text
        from barnabas.serializers.avro.serializers import parse_registered

        registry = open_registry(given)
        parsed = parse_registered(registry, registry.latest(subject).schema)
        text = plain_text(parsed)
    except (RegistryError, SchemaError) as error:
        raise OptionError(f"valueFormat=avro, subject {subject}: {error}") from None
    except ModuleNotFoundError as error:
        raise OptionError(
            f"valueFormat=avro needs the package {error.name}: install Barnabas with the extra "
            f"`registry` on the driver and on the workers"
        ) from None
    return replace(given, schema=text)


def open_registry(given: ValueFormat) -> SchemaRegistry:
    """Return a client of the registry.

    Raises:
        OptionError: The URL or a file is invalid.
    """
    from barnabas.serializers.registry import RegistryOptions, SchemaRegistry

    options = RegistryOptions()
    if given.user:
        options["user_info"] = f"{given.user}:{given.password}"
    if given.ca_file:
        options["ca_file"] = given.ca_file
    try:
        return SchemaRegistry(given.registry, **options)
    except (ValueError, OSError) as error:
        raise OptionError(f"registry: {error}") from None


def column_type(given: ValueFormat) -> str:
    """Return Spark's type of the column `value`.

    Raises:
        OptionError: The schema is invalid, or has no type of columns.
    """
    from barnabas.serializers.avro.arrow import arrow_type
    from barnabas.serializers.avro.schema import AvroSchema
    from barnabas.serializers.errors import SchemaError

    try:
        return _spark_type(arrow_type(AvroSchema(given.schema)))
    except SchemaError as error:
        raise OptionError(f"valueFormat=avro: {error}") from None


class ValueColumn:
    """Decodes the values of a task.

    Args:
        given: The format, with its schema.
        target: The Arrow type that Spark expects.
    """

    def __init__(self, given: ValueFormat, target: pa.DataType) -> None:
        from barnabas.serializers.avro.arrow import AvroColumn
        from barnabas.serializers.avro.schema import AvroSchema

        self._null_on_error = given.null_on_error
        self._column = AvroColumn(open_registry(given), AvroSchema(given.schema), target)

    def array(self, values: pa.Array) -> pa.Array:
        """Return the decoded values of a binary array.

        Raises:
            SchemaError: A value cannot be decoded, unless such values are null.
            RegistryError: The registry was not reached, or refused a request.
        """
        return self._column.array(values.to_pylist(), null_on_error=self._null_on_error)


def _spark_type(kind: pa.DataType) -> str:
    """Return the name of Spark's type.

    Raises:
        OptionError: Spark has no such type.
    """
    import pyarrow as pa

    if pa.types.is_struct(kind):
        fields = ",".join(f"{each.name}:{_spark_type(each.type)}" for each in kind)
        return f"struct<{fields}>"
    if pa.types.is_map(kind):
        return f"map<string,{_spark_type(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{_spark_type(kind.value_type)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    name = _SPARK_NAMES.get(str(kind))
    if name is None:
        raise OptionError(f"valueFormat=avro: Spark has no type for {kind}")
    return name


_SPARK_NAMES = {
    "null": "void",
    "bool": "boolean",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "binary": "binary",
    "string": "string",
    "date32[day]": "date",
    "time64[us]": "time(6)",
}
