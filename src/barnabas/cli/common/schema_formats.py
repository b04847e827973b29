"""Formats with a schema registry: `--value-format avro --registry URL`, or `-s value=avro`.

A line is JSON, as `barnabas consume` prints it: Protobuf as its JSON mapping, logical types of Avro
as text. An error of the registry ends a command even with `--on-error skip`: it is not about a
record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, overload

import click

from barnabas.cli.common.output import key_values
from barnabas.cli.common.record_formats import Format
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.serializers.lookups import Part, SchemaDeserializer, SchemaSerializer
    from barnabas.serializers.registry import SchemaRegistry

__all__ = [
    "REGISTRY_VARIABLE",
    "SchemaFormats",
    "open_registry",
    "registry_option",
    "schema_options",
    "with_format_options",
]

REGISTRY_VARIABLE = "BARNABAS_REGISTRY"
# Settings of -X, of a properties file or of a profile -> options of `SchemaRegistry`.
_URL = "schema.registry.url"
_SETTINGS = {
    "schema.registry.basic.auth.user.info": "user_info",
    "basic.auth.user.info": "user_info",
    "schema.registry.bearer.auth.token": "token",
    "schema.registry.ssl.ca.location": "ca_file",
    "schema.registry.ssl.certificate.location": "certificate_file",
    "schema.registry.ssl.key.location": "key_file",
}


registry_option = click.option(
    "--registry",
    metavar="URL[,...]",
    envvar=REGISTRY_VARIABLE,
    help=f"Schema registry of records in Avro, JSON Schema and Protobuf.  "
    f"[env var: {REGISTRY_VARIABLE}; default: the setting {_URL}]",
)


def schema_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --key-format, --value-format, --key-schema, --value-schema and --registry."""
    file = click.Path(exists=True, dir_okay=False)
    options = [
        click.option("--key-format", metavar="FORMAT", help="The same as -s key=FORMAT."),
        click.option("--value-format", metavar="FORMAT", help="The same as -s value=FORMAT."),
        click.option(
            "--key-schema", type=file, help="File with the schema of keys, for a schema format."
        ),
        click.option(
            "--value-schema", type=file, help="File with the schema of values, for a schema format."
        ),
        registry_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def with_format_options(
    specs: Sequence[str], key_format: str | None, value_format: str | None
) -> list[str]:
    """Return the values of -s, followed by those of --key-format and --value-format."""
    found = list(specs)
    if key_format is not None:
        found.append(f"key={key_format}")
    if value_format is not None:
        found.append(f"value={value_format}")
    return found


@overload
def open_registry(url: str | None, properties: Sequence[str]) -> SchemaRegistry: ...


@overload
def open_registry(
    url: str | None, properties: Sequence[str], *, is_needed: bool
) -> SchemaRegistry | None: ...


def open_registry(
    url: str | None, properties: Sequence[str], *, is_needed: bool = True
) -> SchemaRegistry | None:
    """Return a client of the registry that the options and settings name. It does not connect yet.

    Args:
        url: The value of --registry.
        properties: The settings of the user.
        is_needed: Whether a missing URL is an error; otherwise, None is returned.

    Raises:
        click.UsageError: No URL was given, or a setting is invalid.
    """
    from barnabas.serializers.registry import SchemaRegistry

    settings = {
        key.replace("_", "."): value for key, value in key_values(properties, "--property").items()
    }
    url = url or settings.get(_URL)
    if not url and not is_needed:
        return None
    if not url:
        raise click.UsageError(
            f"this format needs a schema registry: give --registry URL, the variable "
            f"{REGISTRY_VARIABLE}, or the setting {_URL}"
        )
    options: Any = {option: settings[key] for key, option in _SETTINGS.items() if settings.get(key)}
    try:
        return SchemaRegistry(url, **options)
    except (ValueError, OSError) as error:
        raise click.UsageError(f"schema registry: {error}") from None


class SchemaFormats(NamedTuple):
    """What the formats with a schema registry need to know."""

    registry: str | None
    properties: Sequence[str]
    # Files by part of the record; None for the schemas of the registry.
    schemas: Mapping[Part, str | None]
    # The topic to write to; None if records are only read.
    topic: str | None = None

    def named(self, name: str, part: Part) -> Format:
        """Return the format of keys or values.

        Raises:
            click.UsageError: An option is missing, or a schema is invalid.
            click.ClickException: The registry was not reached, or refused the schema.
        """
        from barnabas.serializers.errors import RegistryError, SchemaError

        path = self.schemas[part]
        if path is not None and self.topic is None and name == "protobuf":
            raise click.UsageError(
                f"--{part}-schema: records of Protobuf are read by their own schema; leave it out"
            )
        registry = open_registry(self.registry, self.properties)
        try:
            schema = None if path is None else _content(path)
            if self.topic is None:
                return Format(_reader(name, registry, schema), _not_written)
            write = _writer(_serializer(name, registry, schema), self.topic, part)
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


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - an import of pathlib costs more
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from None


def _serializer(name: str, registry: SchemaRegistry, schema: str | None) -> SchemaSerializer:
    if name == "avro":
        from barnabas.serializers.avro.serializers import AvroSerializer

        return AvroSerializer(registry, schema)
    if name == "json-schema":
        from barnabas.serializers.json_schema import JsonSchemaSerializer

        return JsonSchemaSerializer(registry, schema)
    from barnabas.serializers.protobuf.serializers import ProtobufSerializer

    return ProtobufSerializer(registry, schema=schema)


def _writer(serializer: SchemaSerializer, topic: str, part: Part) -> Callable[[Any], bytes | None]:
    """Return a function from text or a JSON value to bytes. It registers the schema at once."""
    from barnabas.serializers.avro.serializers import AvroSerializer
    from barnabas.serializers.basic import deserialize_json

    bound = serializer.for_topic(topic, part)
    bound.look_up()
    if isinstance(serializer, AvroSerializer):
        from barnabas.cli.common.avro_json import avro_value

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

    deserializer: SchemaDeserializer
    convert: Callable[[Any], Any] | None = None
    if name == "avro":
        from barnabas.serializers.avro.serializers import AvroDeserializer

        deserializer = AvroDeserializer(registry, schema)
    elif name == "json-schema":
        from barnabas.serializers.json_schema import JsonSchemaDeserializer

        deserializer = JsonSchemaDeserializer(registry, schema)
    else:
        from barnabas.serializers.protobuf.serializers import ProtobufDeserializer, message_as_json

        deserializer, convert = ProtobufDeserializer(registry), message_as_json

    def read(data: bytes) -> Any:
        try:
            value = deserializer(data)
        except RegistryError as error:
            raise ClientError(str(error)) from None
        return value if convert is None else convert(value)

    return read


def _not_written(_value: Any) -> bytes:
    raise ValueError("this format can only be read")
