"""JSON Schema with a registry: `JsonSchemaSerializer` and `JsonSchemaDeserializer`.

The payload is JSON, which the schema checks when it is written and when it is read. A schema
without "$schema" is of draft 7, as for Confluent's serializers. `jsonschema-rs` checks: here, its
regular expressions take linear time, and it never fetches a schema from the network. The number of
its checks has a limit, see `json_schema_work`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from barnabas.serializers.avro.schema import check_depth
from barnabas.serializers.errors import SchemaError, SchemaMismatchError, WireFormatError
from barnabas.serializers.json_schema_work import SchemaWork
from barnabas.serializers.lookups import SchemaDeserializer, SchemaSerializer
from barnabas.serializers.schema import Schema, SchemaType, schema_text
from barnabas.serializers.wire_format import HEADER_BYTES, encode_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.serializers.lookups import SerializerOptions
    from barnabas.serializers.registry import SchemaRegistry

__all__ = ["JsonSchemaDeserializer", "JsonSchemaSerializer"]

# Limit for values in error messages.
_SHOWN_CHARACTERS = 200


class JsonSchemaSerializer(SchemaSerializer):
    """Serialize values as JSON that a schema has checked.

    Values are all that JSON can hold, dataclasses, times and `msgspec` structs included.

    Args:
        registry: The registry.
        schema: JSON text, or the same as a dictionary; a `Schema` if it has references. None for
            the latest schema of the subject.
        options: How the schema is found in the registry; see `SerializerOptions`.

    Raises:
        SchemaError: The schema is invalid.
        RegistryError: A reference was not found.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | dict[str, Any] | Schema | None = None,
        **options: Unpack[SerializerOptions],
    ) -> None:
        if schema is not None and not isinstance(schema, Schema):
            schema = Schema(schema_text(schema), SchemaType.JSON)
        super().__init__(registry, schema, options)
        if schema is not None:
            _validator(registry, schema)

    @property
    def record_name(self) -> str:
        """The title of the schema."""
        content = {} if self._schema is None else _json(self._schema.text)
        title = content.get("title", "") if isinstance(content, dict) else ""
        return title if isinstance(title, str) else ""

    def encoder(self, subject: str) -> Callable[[Any], bytes]:
        """Register the schema; return a function from a value to a record's bytes."""
        schema_id, schema = self.registered(subject)
        header, check = encode_header(schema_id), _validator(self.registry, schema)

        def encode(value: Any) -> bytes:
            try:
                plain = msgspec.to_builtins(value)
                data = msgspec.json.encode(plain)
            except (TypeError, ValueError, RecursionError) as error:
                raise SchemaMismatchError(f"the value is not JSON: {error}") from None
            check(plain)
            return header + data

        return encode


class JsonSchemaDeserializer(SchemaDeserializer):
    """Deserialize JSON: dictionaries, lists, strings, numbers, booleans and None.

    Args:
        registry: The registry.
        reader_schema: A schema that all values must fit. None for the schema of each record.

    Raises:
        SchemaError: The reader's schema is invalid.
    """

    def __init__(
        self, registry: SchemaRegistry, reader_schema: str | dict[str, Any] | None = None
    ) -> None:
        super().__init__(registry)
        self._check: Callable[[Any], None] | None = None
        if reader_schema is not None:
            self._check = _validator(registry, Schema(schema_text(reader_schema), SchemaType.JSON))

    def decoder(self, schema_id: int, schema: Schema) -> Callable[[bytes], Any]:
        """Return a function from the bytes of a record to its value."""
        check = self._check or _validator(self.registry, schema)

        def decode(data: bytes) -> Any:
            try:
                value = msgspec.json.decode(memoryview(data)[HEADER_BYTES:])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise WireFormatError(f"the value is not JSON: {error}") from None
            check(value)
            return value

        return decode


def _validator(registry: SchemaRegistry, schema: Schema) -> Callable[[Any], None]:
    """Return a function that raises SchemaMismatchError for values that do not fit.

    Raises:
        SchemaError: The schema is invalid, or of another type.
        RegistryError: A reference was not found.
    """
    import jsonschema_rs

    if schema.kind is not SchemaType.JSON:
        raise SchemaError(f"the schema is of type {schema.kind}, not JSON: use its deserializer")
    content = _json(schema.text)
    references = {name: _json(each.text) for name, each in registry.referenced(schema).items()}
    work = SchemaWork(content, references)
    has_draft = isinstance(content, dict) and "$schema" in content
    make = jsonschema_rs.validator_for if has_draft else jsonschema_rs.Draft7Validator
    try:
        known = jsonschema_rs.Registry(list(references.items()), retriever=_refuse)
        validator = make(
            content,
            retriever=_refuse,
            registry=known,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaError(f"the JSON Schema is invalid: {_first_line(error)}") from None

    def check(value: Any) -> None:
        work.check(value)
        try:
            validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            field = _path(error.instance_path)
            where = f"field {field}" if field else "the value"
            raise SchemaMismatchError(f"{where}: {_first_line(error)}", field) from None
        except ValueError as error:
            raise SchemaMismatchError(f"the value cannot be checked: {error}") from None

    return check


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not among the references of the schema")


def _json(text: str) -> Any:
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SchemaError(f"the JSON Schema is not JSON: {error}") from None
    check_depth(content)
    return content


def _path(parts: list[str | int]) -> str:
    """Return a path such as items[2].name."""
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:_SHOWN_CHARACTERS]
