"""The option `valueFormat`: the column `value` has the fields of the records.

The type of the column is fixed when a query is planned. For Avro it is `valueSchema`, or the latest
schema of the topic's subject; records of other versions are converted to it. For Protobuf it is the
same, and `valueMessage` is the message of the schema. For JSON it is `valueSchema`, the columns as
Spark's DDL.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from barnabas.spark.errors import OptionError
from barnabas.spark.option_table import parse_switch

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from google.protobuf.message import Message

    from barnabas.serializers.registry import SchemaRegistry


# The text of `valueSchema` with which a batch read infers the columns.
INFER = "infer"
_OF_REGISTRY = {
    "registry": "registry",
    "registryuser": "registryUser",
    "registrypassword": "registryPassword",
    "registrycafile": "registryCaFile",
}
# An option of Spark's `from_protobuf`.
_DEFAULTS = "emit.default.values"
_OF_ERRORS = {"valueerrors": "valueErrors", "deadlettertopic": "deadLetterTopic"}


class Format(Enum):
    """The encodings of values."""

    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"


class ValueErrors(Enum):
    """The ways to handle a record whose value cannot be decoded."""

    # The read fails; Spark's FAILFAST.
    FAIL = "fail"
    # The row's value is null; Spark's PERMISSIVE.
    NULL = "null"
    # There is no row; Spark's DROPMALFORMED.
    DROP = "drop"


# The options that have a meaning, by format, with names in lower case.
_OPTIONS: dict[Format | None, dict[str, str]] = {
    None: {},
    Format.AVRO: _OF_REGISTRY | _OF_ERRORS | {"valueschema": "valueSchema"},
    Format.JSON: _OF_ERRORS | {"valueschema": "valueSchema"},
    Format.PROTOBUF: _OF_REGISTRY
    | _OF_ERRORS
    | {
        "valueschema": "valueSchema",
        "valuemessage": "valueMessage",
        _DEFAULTS: _DEFAULTS,
    },
}


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """The options that decide how values are decoded.

    They are plain values, because Spark pickles them for its workers.
    """

    format: Format
    # URL of the schema registry; "" for formats without a registry.
    registry: str = ""
    # Avro: the JSON of the column's schema. JSON: DDL, or `infer`. Protobuf: .proto text, or a
    # descriptor in base64. "" until `resolve` has found it.
    schema: str = ""
    # The topic whose schema is used; "" if the option gives the schema.
    topic: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""
    errors: ValueErrors = ValueErrors.FAIL
    # The topic that receives records whose value cannot be decoded; "" for none.
    dead_letter_topic: str = ""
    # Protobuf: the name of the message; "" for the first one of the schema.
    message: str = ""
    # Protobuf: whether fields without presence have their default value instead of null.
    with_defaults: bool = False
    # Protobuf: the path and the text of each file that the schema imports; `resolve` finds them.
    imports: tuple[tuple[str, str], ...] = ()


def parse_value_format(
    options: Mapping[str, str], topics: tuple[str, ...], *, streaming: bool
) -> ValueFormat | None:
    """Return the format of values; None for bytes.

    Args:
        options: The options, with names in lower case.
        topics: The topics that are read; empty if a pattern selects them.
        streaming: Whether the options are those of a stream.

    Raises:
        OptionError: An option is wrong or missing.
    """
    chosen = _format(options)
    for names in _OPTIONS.values():
        for key, option in names.items():
            if key in options and key not in _OPTIONS[chosen]:
                meant = " or ".join(
                    f"valueFormat={each.value}" for each in Format if key in _OPTIONS[each]
                )
                raise OptionError(f"{option} has no meaning without {meant}")
    if chosen is None:
        return None
    schema = options.get("valueschema", "").strip()
    if chosen is Format.JSON:
        _check_json(schema, topics, streaming=streaming)
    registry = options.get("registry", "").strip()
    if chosen is not Format.JSON and not registry:
        raise OptionError(
            f"valueFormat={chosen.value} needs registry: give the URL of the schema registry"
        )
    is_found = not schema or schema.lower() == INFER
    if is_found and len(topics) != 1:
        raise OptionError(
            f"valueFormat={chosen.value} with several topics needs valueSchema: give the schema of "
            f"the column"
        )
    errors, dead_letter_topic = _errors(options, topics)
    return ValueFormat(
        format=chosen,
        registry=registry,
        schema=schema,
        topic=topics[0] if is_found else "",
        user=options.get("registryuser", ""),
        password=options.get("registrypassword", ""),
        ca_file=options.get("registrycafile", ""),
        errors=errors,
        dead_letter_topic=dead_letter_topic,
        message=options.get("valuemessage", "").strip(),
        with_defaults=parse_switch(_DEFAULTS, options.get(_DEFAULTS, "false")),
    )


def _format(options: Mapping[str, str]) -> Format | None:
    name = options.get("valueformat", "binary").strip().lower()
    if name == "binary":
        return None
    try:
        return Format(name)
    except ValueError:
        valid = ", ".join(f"'{each.value}'" for each in Format)
        raise OptionError(f"valueFormat={name!r}; expected 'binary', {valid}") from None


def _check_json(schema: str, topics: tuple[str, ...], *, streaming: bool) -> None:
    if schema and not (streaming and schema.lower() == INFER):
        return
    topic = topics[0] if topics else "TOPIC"
    problem = (
        "valueSchema=infer is for spark.read: the columns of a stream would change between two runs"
        if schema
        else "valueFormat=json needs valueSchema"
    )
    raise OptionError(
        f"{problem}. Give the columns, such as 'origin STRING, delay BIGINT'; "
        f"`barnabas topics schema {topic}` prints those that the records have"
    )


def _errors(options: Mapping[str, str], topics: tuple[str, ...]) -> tuple[ValueErrors, str]:
    """Return what becomes of a value that cannot be decoded, and the topic for dead letters."""
    letters = options.get("deadlettertopic", "").strip()
    if "deadlettertopic" in options and not letters:
        raise OptionError("deadLetterTopic is empty: leave it out, or name a topic")
    if letters in topics:
        raise OptionError(
            f"deadLetterTopic={letters!r} is also read: each dead letter would make another one"
        )
    default = ValueErrors.DROP if letters else ValueErrors.FAIL
    name = options.get("valueerrors", default.value).strip().lower()
    try:
        errors = ValueErrors(name)
    except ValueError:
        raise OptionError(f"valueErrors={name!r}; expected 'fail', 'null' or 'drop'") from None
    if letters and errors is ValueErrors.FAIL:
        raise OptionError(
            "deadLetterTopic has no meaning with valueErrors=fail: use 'drop', or 'null' to keep "
            "the row"
        )
    return errors, letters


def resolve(given: ValueFormat, client: Mapping[str, str]) -> ValueFormat:
    """Return the format with the schema of the column.

    This may ask the registry, and reads a sample of the topic for `valueSchema=infer`.

    Raises:
        OptionError: The registry has no schema of the topic, was not reached, or the packages of
            the extra are missing. Or the sample has no JSON objects.
    """
    if not given.topic:
        return given
    if given.format is Format.JSON:
        from barnabas.spark.topics.clients import planning_client
        from barnabas.spark.topics.json_inference import SAMPLE_SIZE, InferenceError, infer_topic

        try:
            found = infer_topic(planning_client(client), given.topic, SAMPLE_SIZE)
            return replace(given, schema=found.ddl())
        except InferenceError as error:
            raise OptionError(f"valueSchema=infer: {error}") from None
    from barnabas.serializers.errors import RegistryError, SchemaError

    subject = f"{given.topic}-value"
    name = given.format.value
    try:
        registry = open_registry(given)
        if given.format is Format.PROTOBUF:
            return _latest_protobuf(given, registry, subject)
        return _latest_avro(given, registry, subject)
    except (RegistryError, SchemaError) as error:
        raise OptionError(f"valueFormat={name}, subject {subject}: {error}") from None
    except ModuleNotFoundError as error:
        raise _missing(name, error) from None


def _latest_avro(given: ValueFormat, registry: SchemaRegistry, subject: str) -> ValueFormat:
    from barnabas.serializers.avro import parse_registered
    from barnabas.serializers.avro_arrow import plain_text

    parsed = parse_registered(registry, registry.latest(subject).schema)
    return replace(given, schema=plain_text(parsed))


def _latest_protobuf(given: ValueFormat, registry: SchemaRegistry, subject: str) -> ValueFormat:
    from barnabas.serializers.errors import SchemaError
    from barnabas.serializers.schema import SchemaType

    latest = registry.latest(subject).schema
    if latest.kind is not SchemaType.PROTOBUF:
        raise SchemaError(f"the schema is of type {latest.kind}, not PROTOBUF")
    imports = tuple((name, each.text) for name, each in registry.referenced(latest).items())
    return replace(given, schema=latest.text, imports=imports)


def _missing(name: str, error: ModuleNotFoundError) -> OptionError:
    return OptionError(
        f"valueFormat={name} needs the package {error.name}: install Barnabas with the extra "
        f"`registry` on the driver and on the workers"
    )


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
    if given.format is Format.JSON:
        text = given.schema
        return text if text.lower().startswith("struct<") else f"struct<{text}>"
    from barnabas.serializers.errors import SchemaError

    name = given.format.value
    try:
        return _spark_type(_arrow_type(given), name)
    except SchemaError as error:
        raise OptionError(f"valueFormat={name}: {error}") from None
    except ModuleNotFoundError as error:
        raise _missing(name, error) from None


def _arrow_type(given: ValueFormat) -> pa.DataType:
    if given.format is Format.PROTOBUF:
        from barnabas.serializers import protobuf_arrow

        return protobuf_arrow.arrow_type(message_class(given).DESCRIPTOR)
    from barnabas.serializers.avro_arrow import arrow_type
    from barnabas.serializers.avro_schema import AvroSchema

    return arrow_type(AvroSchema(given.schema))


def message_class(given: ValueFormat) -> type[Message]:
    """Return the class of the message of `valueFormat=protobuf`.

    Raises:
        SchemaError: The schema is invalid, or has no such message.
    """
    from barnabas.serializers.proto_types import ProtoTypes
    from barnabas.serializers.schema import Schema, SchemaType

    imports = {name: Schema(text, SchemaType.PROTOBUF) for name, text in given.imports}
    types = ProtoTypes(Schema(given.schema, SchemaType.PROTOBUF), imports)
    return types.named(given.message) if given.message else types.message_class()


def _spark_type(kind: pa.DataType, name: str) -> str:
    """Return the name of Spark's type.

    Args:
        kind: The type.
        name: The format of values, for the error.

    Raises:
        OptionError: Spark has no such type.
    """
    import pyarrow as pa

    if pa.types.is_struct(kind):
        fields = ",".join(f"{each.name}:{_spark_type(each.type, name)}" for each in kind)
        return f"struct<{fields}>"
    if pa.types.is_map(kind):
        return f"map<{_spark_type(kind.key_type, name)},{_spark_type(kind.item_type, name)}>"
    if pa.types.is_list(kind):
        return f"array<{_spark_type(kind.value_type, name)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    found = _SPARK_NAMES.get(str(kind))
    if found is None:
        raise OptionError(f"valueFormat={name}: Spark has no type for {kind}")
    return found


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
    "duration[us]": "interval day to second",
}
