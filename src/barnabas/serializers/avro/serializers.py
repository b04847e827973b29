"""Avro with a schema registry: `AvroSerializer` and `AvroDeserializer`.

Records are dictionaries; a union takes a value of one of its branches. Logical types are Python's:
`datetime`, `date`, `time`, `decimal.Decimal`, `uuid.UUID`. Source: the Avro specification 1.12, and
the wire format in `wire_format`. `fastavro` encodes and decodes.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any, Unpack

from barnabas.serializers.avro.mismatches import find_mismatch, find_unfit
from barnabas.serializers.avro.schema import AvroSchema
from barnabas.serializers.avro.skim import skim
from barnabas.serializers.errors import (
    CONFLICT,
    RegistryError,
    SchemaError,
    SchemaMismatchError,
    WireFormatError,
)
from barnabas.serializers.lookups import SchemaDeserializer, SchemaSerializer
from barnabas.serializers.schema import Schema, SchemaType, schema_text
from barnabas.serializers.wire_format import HEADER_BYTES, encode_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.serializers.lookups import SerializerOptions
    from barnabas.serializers.registry import SchemaRegistry

__all__ = ["AvroDeserializer", "AvroSerializer", "parse_registered"]

# In smaller records, decimals need no check: they take microseconds.
_SMALL_BYTES = 4096
_DECODE_ERRORS = (EOFError, LookupError, ValueError, TypeError, ArithmeticError, RecursionError)
_ENCODE_ERRORS = (*_DECODE_ERRORS, AttributeError)


def parse_registered(registry: SchemaRegistry, schema: Schema) -> AvroSchema:
    """Parse a schema of the registry, with the schemas to which it refers.

    Raises:
        SchemaError: The schema is invalid, or of another type.
        RegistryError: A reference was not found.
    """
    if schema.kind is not SchemaType.AVRO:
        raise SchemaError(f"the schema is of type {schema.kind}, not AVRO: use its deserializer")
    return AvroSchema(schema.text, [each.text for each in registry.referenced(schema).values()])


class AvroSerializer(SchemaSerializer):
    """Serialize values as Avro; the first value of a topic registers the schema.

    Args:
        registry: The registry.
        schema: JSON text, or the same as a dictionary or a list; a `Schema` if it has references.
            None for the latest schema of the subject.
        options: How the schema is found in the registry; see `SerializerOptions`.

    Raises:
        SchemaError: The schema is invalid.
        RegistryError: A reference was not found.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | dict[str, Any] | list[Any] | Schema | None = None,
        **options: Unpack[SerializerOptions],
    ) -> None:
        if schema is not None and not isinstance(schema, Schema):
            schema = Schema(schema_text(schema))
        super().__init__(registry, schema, options)
        self._parsed = None if schema is None else parse_registered(registry, schema)

    @property
    def record_name(self) -> str:
        """The full name of the record type."""
        return "" if self._parsed is None else self._parsed.full_name

    def avro_schema(self, subject: str) -> AvroSchema:
        """Return the schema to write with. This may block.

        Raises:
            RegistryError: There is no such subject, or the registry was not reached.
        """
        if self._parsed is not None:
            return self._parsed
        return parse_registered(self.registry, self.registry.latest(subject).schema)

    def encoder(self, subject: str) -> Callable[[Any], bytes]:
        """Register the schema; return a function from a value to a record's bytes."""
        from fastavro import schemaless_writer

        try:
            schema_id, _schema = self.registered(subject)
        except RegistryError as error:
            if error.status != CONFLICT:
                raise
            raise self._conflict(subject, error) from None
        header, parsed = encode_header(schema_id), self.avro_schema(subject)
        root = parsed.root

        def encode(value: Any) -> bytes:
            stream = BytesIO()
            stream.write(header)
            try:
                schemaless_writer(stream, root, value, strict_allow_default=True)
            except _ENCODE_ERRORS as error:
                raise _unfit(value, parsed, error) from None
            return stream.getvalue()

        return encode

    def _conflict(self, subject: str, error: RegistryError) -> RegistryError:
        """Return the error of an incompatible schema, with the field if it is found."""
        assert self._parsed is not None
        try:
            latest = parse_registered(self.registry, self.registry.latest(subject).schema)
        except (RegistryError, SchemaError):
            return error
        found = find_mismatch(latest, self._parsed, strict=True)
        if found is None:
            reverse = find_mismatch(self._parsed, latest, strict=True)
            where = (
                "" if reverse is None else f"The latest schema cannot read the new one: {reverse}"
            )
        else:
            where = f"The new schema cannot read the latest one: {found}"
        return RegistryError(f"{error}. {where}" if where else str(error), error.status, error.code)


class AvroDeserializer(SchemaDeserializer):
    """Deserialize Avro by the schema with which each record was written.

    Args:
        registry: The registry.
        reader_schema: The schema to which all records are converted: other versions get its
            defaults, and lose the fields that it lacks. None for the schema of each record.

    Raises:
        SchemaError: The reader's schema is invalid.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        reader_schema: str | dict[str, Any] | list[Any] | None = None,
    ) -> None:
        super().__init__(registry)
        self._reader = None if reader_schema is None else AvroSchema(schema_text(reader_schema))

    def decoder(self, schema_id: int, schema: Schema) -> Callable[[bytes], Any]:
        """Return a function from the bytes of a record to its value."""
        from fastavro import schemaless_reader
        from fastavro.read import SchemaResolutionError

        writer, reader = parse_registered(self.registry, schema), self._reader
        if reader is not None:
            mismatch = find_mismatch(writer, reader)
            if mismatch is not None:
                raise SchemaMismatchError(
                    f"records with schema id {schema_id} do not fit the reader's schema: "
                    f"{mismatch}",
                    mismatch.field,
                )
        errors = (*_DECODE_ERRORS, SchemaResolutionError)
        target = None if reader is None else reader.root

        def decode(data: bytes) -> Any:
            if writer.needs_skim or (writer.has_decimals and len(data) > _SMALL_BYTES):
                skim(writer, data, HEADER_BYTES)
            stream = BytesIO(data)
            stream.seek(HEADER_BYTES)
            try:
                value = schemaless_reader(stream, writer.root, target)
            except errors as error:
                raise WireFormatError(
                    f"the bytes do not fit the Avro schema with id {schema_id}: {error!r}"[:500]
                ) from None
            if stream.tell() != len(data):
                raise WireFormatError(
                    f"{len(data) - stream.tell()} byte(s) remain after the value of the Avro "
                    f"schema with id {schema_id}"
                )
            return value

        return decode


def _unfit(value: Any, schema: AvroSchema, error: Exception) -> SchemaMismatchError:
    """Return the error of a value that does not fit, with the field if it is found."""
    found = find_unfit(value, schema)
    if found is None:
        return SchemaMismatchError(f"the value does not fit the Avro schema: {error}"[:500])
    where = f"field {found.field}" if found.field else "the value"
    return SchemaMismatchError(f"{where}: {found.reason}", found.field)
