"""Formats with a schema registry: `--value-format avro --registry URL`, or `-s value=avro`.

A line is JSON, as `barnabas consume` prints it: Protobuf as its JSON mapping, logical types of Avro
as text. To write Avro, times in ISO text, decimals and UUIDs in text, and bytes in base64 are
converted back. A union may also be written in Avro's own JSON form: {"string": "JFK"}. An error of
the registry ends a command even with `--on-error skip`: it is not about a record.

`Naming` chooses the subject and the message type to write. Its words are those of Confluent's
clients: the subject name strategies and the settings `key.subject.name.strategy` and
`value.subject.name.strategy`.
"""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Decimal
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from uuid import UUID

import click

from barnabas.cli.common.output import option_group
from barnabas.cli.common.registries import (
    DEFAULT_REGISTRY,
    file_text,
    need_registry,
    registry_option,
    registry_settings,
)
from barnabas.cli.records.formats import Format, parse_formats
from barnabas.client.errors import ClientError
from barnabas.serializers.basic import deserialize_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from barnabas.serializers.avro_schema import AvroNode, AvroSchema
    from barnabas.serializers.lookups import Part, SchemaDeserializer, SchemaSerializer
    from barnabas.serializers.registry import SchemaRegistry
    from barnabas.serializers.schema import SubjectName


F = TypeVar("F", bound="Callable[..., Any]")

_STRATEGY = "subject.name.strategy"
# The names of Confluent's classes end like this.
_STRATEGY_SUFFIX = "NameStrategy"
_STRATEGIES = {"topic": "topic_name", "record": "record_name", "topicrecord": "topic_record_name"}


_PARTS: tuple[Part, ...] = ("key", "value")
_FILE = click.Path(exists=True, dir_okay=False)
_SCHEMA_OPTIONS = (
    click.option("--key-format", metavar="FORMAT", help="The same as -s key=FORMAT."),
    click.option("--value-format", metavar="FORMAT", help="The same as -s value=FORMAT."),
    click.option(
        "--key-schema", type=_FILE, help="File with the schema of keys, for a schema format."
    ),
    click.option(
        "--value-schema", type=_FILE, help="File with the schema of values, for a schema format."
    ),
    registry_option(
        "Schema registry of the formats avro, json-schema, protobuf.", DEFAULT_REGISTRY
    ),
)
_NAMING_OPTIONS = (
    click.option(
        "--subject-name-strategy",
        metavar="STRATEGY",
        help=f"Name of the schema's subject: topic (TOPIC-value), record (the record type) or "
        f"topic-record (TOPIC-TYPE).  [default: the setting value.{_STRATEGY} or topic]",
    ),
    click.option(
        "--key-message", metavar="NAME", help="Type of keys, like --value-message for values."
    ),
    click.option(
        "--value-message",
        metavar="NAME",
        help="Protobuf message to write, by default the first of the schema. Without "
        "--value-schema, also the record type for the strategies record and topic-record.",
    ),
)


def format_options(*, is_written: bool) -> Callable[[F], F]:
    """Return a decorator that adds -s and the options of schemas.

    The command receives them as `formats`, a `FormatOptions`.

    Args:
        is_written: Whether the command writes records, so that schemas need names.
    """
    verb = "Encode" if is_written else "Decode"
    add_options = option_group(
        click.option(
            "-s",
            "--as",
            "specs",
            multiple=True,
            metavar="[key=|value=]FORMAT",
            help=f"{verb} keys or values in this format (see below).",
        ),
        *_SCHEMA_OPTIONS,
        *(_NAMING_OPTIONS if is_written else ()),
    )

    def decorate(command: F) -> F:
        @wraps(command)
        def with_formats(*, specs: Sequence[str], registry: str | None, **given: Any) -> Any:
            schemas = {part: given.pop(f"{part}_schema") for part in _PARTS}
            named = [(part, given.pop(f"{part}_format")) for part in _PARTS]
            messages = {part: given.pop(f"{part}_message", None) for part in _PARTS}
            formats = FormatOptions(
                (*specs, *(f"{part}={name}" for part, name in named if name is not None)),
                registry,
                schemas,
                Naming(given.pop("subject_name_strategy", None), messages),
            )
            return command(formats=formats, **given)

        return cast("F", add_options(with_formats))

    return decorate


class Naming(NamedTuple):
    """The choice of the subject and the message type of written records."""

    # The value of --subject-name-strategy.
    strategy: str | None
    # The names of record types by part of the record.
    messages: Mapping[Part, str | None]

    def subject_name(self, part: Part, settings: Mapping[str, str]) -> SubjectName:
        """Return the strategy for keys or values.

        Raises:
            click.UsageError: There is no such strategy.
        """
        from barnabas.serializers import schema

        setting = f"{part}.{_STRATEGY}"
        given = self.strategy or settings.get(setting) or "topic"
        # Java's clients name a class, such as io.confluent.….RecordNameStrategy.
        word = given.rpartition(".")[2].removesuffix(_STRATEGY_SUFFIX)
        name = _STRATEGIES.get(word.lower().replace("-", ""))
        if name is None:
            source = "--subject-name-strategy" if self.strategy else setting
            raise click.UsageError(
                f"{source}: there is no strategy {given!r}; choose topic, record or topic-record"
            )
        strategy: SubjectName = getattr(schema, name)
        # A schema that the registry has yet to send has no name.
        default = self.messages[part] or ""
        if name != "topic_name" and not default:
            return strategy
        return lambda topic, part, record: strategy(topic, part, record or default)


class FormatOptions(NamedTuple):
    """The options that choose the formats of keys and values."""

    # The values of -s, followed by those of --key-format and --value-format.
    specs: Sequence[str]
    registry: str | None
    # Files by part of the record; None for the schemas of the registry.
    schemas: Mapping[Part, str | None]
    naming: Naming

    def parse(
        self, properties: Sequence[str], topic: str | None = None
    ) -> tuple[Format | None, Format | None]:
        """Return the formats of key and value; None for raw bytes.

        Args:
            properties: The settings of the user.
            topic: The topic to write to; None if records are only read.

        Raises:
            click.UsageError: There is no such format, or it lacks an option.
            click.ClickException: The schema registry was not reached.
        """
        schemas = _SchemaFormats(self, properties, topic)
        return parse_formats(self.specs, layouts=topic is None, schemas=schemas)


class _SchemaFormats(NamedTuple):
    """Makes the formats with a schema registry."""

    options: FormatOptions
    properties: Sequence[str]
    topic: str | None

    def named(self, name: str, part: Part) -> Format:
        """Return the format of keys or values.

        Raises:
            click.UsageError: An option is missing, or a schema is invalid.
            click.ClickException: The registry was not reached, or refused the schema.
        """
        from barnabas.serializers.errors import RegistryError, SchemaError

        path = self.options.schemas[part]
        if path is not None and self.topic is None and name == "protobuf":
            raise click.UsageError(
                f"--{part}-schema: records of Protobuf are read by their own schema; leave it out"
            )
        registry = need_registry(self.options.registry, self.properties)
        try:
            schema = None if path is None else file_text(path)
            if self.topic is None:
                return Format(_reader(name, registry, schema), _not_written)
            serializer = self._serializer(name, part, registry, schema)
            write = json_writer(serializer, self.topic, part)
            return Format(_reader(name, registry, None), write)
        except SchemaError as error:
            raise click.UsageError(f"the schema of the {part}: {error}") from None
        except RegistryError as error:
            raise click.ClickException(str(error)) from None
        except ModuleNotFoundError as error:
            raise click.UsageError(
                f"the format {name} needs the package {error.name}: install Barnabas with the "
                f"extra `registry`, in a clone by: pip install '.[registry]'"
            ) from None

    def check_used(self, parts: Collection[Part]) -> None:
        """Check that no schema or message type is given for other parts than these.

        Raises:
            click.UsageError: An option has no effect.
        """
        messages = self.options.naming.messages
        for part, schema in self.options.schemas.items():
            for option, given in (("schema", schema), ("message", messages[part])):
                if given is not None and part not in parts:
                    raise click.UsageError(
                        f"--{part}-{option} needs a format with a schema: give --{part}-format "
                        f"avro, json-schema or protobuf"
                    )

    def _serializer(
        self, name: str, part: Part, registry: SchemaRegistry, schema: str | None
    ) -> SchemaSerializer:
        naming = self.options.naming
        message = naming.messages[part]
        if message is not None and schema is not None and name != "protobuf":
            raise click.UsageError(
                f"--{part}-message: the schema in --{part}-schema names its type; leave it out"
            )
        subject = naming.subject_name(part, registry_settings(self.properties))
        if name == "avro":
            from barnabas.serializers.avro import AvroSerializer

            return AvroSerializer(registry, schema, subject_name=subject)
        if name == "json-schema":
            from barnabas.serializers.json_schema import JsonSchemaSerializer

            return JsonSchemaSerializer(registry, schema, subject_name=subject)
        from barnabas.serializers.protobuf import ProtobufSerializer

        return ProtobufSerializer(registry, message, schema, subject_name=subject)


def json_writer(
    serializer: SchemaSerializer, topic: str, part: Part
) -> Callable[[Any], bytes | None]:
    """Return a function from text or a JSON value to bytes. It registers the schema at once."""
    from barnabas.serializers.avro import AvroSerializer

    bound = serializer.for_topic(topic, part)
    bound.look_up()
    if isinstance(serializer, AvroSerializer):
        schema = serializer.avro_schema(bound.subject)

        def write_avro(given: Any) -> bytes | None:
            is_text = isinstance(given, str) and schema.root not in ("string", {"type": "string"})
            return bound(avro_value(deserialize_json(given.encode()) if is_text else given, schema))

        return write_avro

    def write(given: Any) -> bytes | None:
        return bound(deserialize_json(given.encode()) if isinstance(given, str) else given)

    return write


def _reader(name: str, registry: SchemaRegistry, schema: str | None) -> Callable[[bytes], Any]:
    """Return a function from bytes to a JSON value."""
    from barnabas.serializers.errors import RegistryError
    from barnabas.serializers.schema import check_json_size

    deserializer: SchemaDeserializer
    convert: Callable[[Any], Any] | None = None
    if name == "avro":
        from barnabas.serializers.avro import AvroDeserializer

        deserializer = AvroDeserializer(registry, schema)
    elif name == "json-schema":
        from barnabas.serializers.json_schema import JsonSchemaDeserializer

        deserializer = JsonSchemaDeserializer(registry, schema)
    else:
        from barnabas.serializers.protobuf import ProtobufDeserializer, message_as_json

        deserializer, convert = ProtobufDeserializer(registry), message_as_json

    def read(data: bytes) -> Any:
        try:
            value = deserializer(data)
        except RegistryError as error:
            raise ClientError(str(error)) from None
        if convert is not None:
            value = convert(value)
        check_json_size(value, len(data))
        return value

    return read


def _not_written(_value: Any) -> bytes:
    raise ValueError("this format can only be read")


_LOGICAL: dict[str, Callable[[str], Any]] = {
    "timestamp-millis": dt.datetime.fromisoformat,
    "timestamp-micros": dt.datetime.fromisoformat,
    "local-timestamp-millis": dt.datetime.fromisoformat,
    "local-timestamp-micros": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "time-millis": dt.time.fromisoformat,
    "time-micros": dt.time.fromisoformat,
    "decimal": Decimal,
    "uuid": UUID,
}
_NUMBERS = (int, float)
_FITTING: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int, dt.date, dt.time),
    "long": (int, dt.datetime, dt.time),
    "float": _NUMBERS,
    "double": _NUMBERS,
    "string": (str, UUID),
    "bytes": (bytes, Decimal),
    "fixed": (bytes, Decimal, UUID),
    "enum": (str,),
    "record": (dict,),
    "error": (dict,),
    "map": (dict,),
    "array": (list,),
}


def avro_value(value: Any, schema: AvroSchema) -> Any:
    """Return a JSON value in the form that the schema needs.

    What does not fit stays as it is: the serializer's error then names the field.
    """
    return _Conversion(schema).convert(value, schema.root)


class _Conversion:
    """The conversion of values of one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        # Imported only for Avro.
        from barnabas.serializers.avro_schema import node_type

        self._node_type = partial(node_type, names=schema.names)

    def convert(self, value: Any, node: AvroNode) -> Any:
        """Return the value of a part of the schema."""
        kind, definition = self._node_type(node)
        if isinstance(definition, list):
            return self._convert_union(value, definition)
        if isinstance(value, str):
            return _from_text(value, kind, definition)
        if not isinstance(definition, dict):
            return value
        if kind in ("record", "error") and isinstance(value, dict):
            types = {field["name"]: field["type"] for field in definition["fields"]}
            return {
                name: self.convert(part, types[name]) if name in types else part
                for name, part in value.items()
            }
        if kind == "array" and isinstance(value, list):
            return [self.convert(part, definition["items"]) for part in value]
        if kind == "map" and isinstance(value, dict):
            return {name: self.convert(part, definition["values"]) for name, part in value.items()}
        return value

    def _convert_union(self, value: Any, branches: list[Any]) -> Any:
        """Return the value of the first branch that fits."""
        if isinstance(value, dict) and len(value) == 1:
            [(name, inner)] = value.items()
            for branch in branches:
                if name in self._branch_names(branch):
                    return self.convert(inner, branch)
        for branch in branches:
            kind = self._node_type(branch)[0]
            made = self.convert(value, branch)
            if isinstance(made, _FITTING[kind]) and isinstance(made, bool) == (kind == "boolean"):
                return made
        return value

    def _branch_names(self, branch: AvroNode) -> set[str]:
        kind, definition = self._node_type(branch)
        if isinstance(definition, dict) and "name" in definition:
            return {definition["name"], definition["name"].rpartition(".")[2]}
        return {kind}


def _from_text(value: str, kind: str, definition: AvroNode) -> Any:
    logical = definition.get("logicalType") if isinstance(definition, dict) else None
    parse = _LOGICAL.get(str(logical))
    if parse is None and kind in ("bytes", "fixed"):
        parse = base64.b64decode
    if parse is None:
        return value
    try:
        return parse(value)
    except (ValueError, ArithmeticError):
        return value
