"""Avro with a schema registry: `AvroSerializer` and `AvroDeserializer`.

Records are dictionaries; a union takes a value of one of its branches. Logical types are Python's:
`datetime`, `date`, `time`, `decimal.Decimal`, `uuid.UUID`. Source: the Avro specification 1.12, and
the wire format in `schema`. `fastavro` encodes and decodes.

Errors name the field that does not fit, which `fastavro` does not do. `find_mismatch` compares a
reader's schema with a writer's schema ("Schema Resolution" of the Avro specification), `find_unfit`
a value with a schema.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from barnabas.serializers.avro_schema import AvroSchema, node_type, skim
from barnabas.serializers.errors import (
    SchemaError,
    SchemaMismatchError,
    WireFormatError,
)
from barnabas.serializers.lookups import SchemaDeserializer, SchemaSerializer
from barnabas.serializers.schema import HEADER_BYTES, Schema, SchemaType, encode_header, schema_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.serializers.avro_schema import AvroNode
    from barnabas.serializers.lookups import SerializerOptions
    from barnabas.serializers.registry import SchemaRegistry

# Each branch of a union is compared with each branch of the other union.
_COMPARISONS_MAX = 1_000_000
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_SHOWN_CHARACTERS = 80
_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
# Types of values that may have fields or items of their own.
_NESTED = {"record": dict, "error": dict, "map": dict, "array": list}
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

        schema_id, _schema = self.registered(subject)
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

    def conflict(self, subject: str) -> str | None:
        """Return the field of the schema that is not compatible with the latest one."""
        assert self._parsed is not None
        latest = parse_registered(self.registry, self.registry.latest(subject).schema)
        found = find_mismatch(latest, self._parsed, strict=True)
        if found is not None:
            return f"The new schema cannot read the latest one: {found}"
        reverse = find_mismatch(self._parsed, latest, strict=True)
        return None if reverse is None else f"The latest schema cannot read the new one: {reverse}"


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


class Mismatch(NamedTuple):
    """A part of a reader's schema that does not fit the writer's."""

    # The path of the field; "" for the whole schema.
    field: str
    reason: str

    def __str__(self) -> str:
        return f"field {self.field}: {self.reason}" if self.field else self.reason


def find_mismatch(
    writer: AvroSchema, reader: AvroSchema, *, strict: bool = False
) -> Mismatch | None:
    """Return the first part of the reader's schema that does not fit; None if all parts fit.

    Args:
        writer, reader: The two schemas.
        strict: Whether each branch of a writer's union and each symbol of its enum must fit.
            Otherwise, it depends on the record, and is not reported.

    Raises:
        SchemaError: The unions of the schemas have too many branches.
    """
    return _Resolution(writer, reader, strict=strict).compare(writer.root, reader.root, "")


class _Resolution:
    """The comparison of two schemas."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema, *, strict: bool) -> None:
        self._writer = writer.names
        self._reader = reader.names
        self._strict = strict
        # Pairs of records that are compared already; recursive schemas contain them again.
        self._seen: set[tuple[str, str]] = set()
        self._comparisons = 0

    def compare(self, writer: AvroNode, reader: AvroNode, path: str) -> Mismatch | None:
        """Return the first mismatch below a path."""
        self._comparisons += 1
        if self._comparisons > _COMPARISONS_MAX:
            raise SchemaError(
                f"the two Avro schemas need more than {_COMPARISONS_MAX} comparisons: their unions "
                f"have too many branches"
            )
        written, written_definition = node_type(writer, self._writer)
        wanted, wanted_definition = node_type(reader, self._reader)
        if isinstance(written_definition, list):
            return self._from_union(written_definition, reader, path)
        if isinstance(wanted_definition, list):
            found = [self.compare(writer, branch, path) for branch in wanted_definition]
            if None in found:
                return None
            branches = ", ".join(node_type(each, self._reader)[0] for each in wanted_definition)
            # The only branch besides null says more than the list of branches.
            inner = [each for each in found if each is not None and each.field != path]
            return inner[0] if inner else Mismatch(path, f"{written} is none of {branches}")
        if written != wanted:
            if wanted in _PROMOTIONS.get(written, ()):
                return None
            return Mismatch(path, f"{written} of the writer cannot be read as {wanted}")
        if isinstance(written_definition, dict) and isinstance(wanted_definition, dict):
            return self._compare_complex(wanted, written_definition, wanted_definition, path)
        return None

    def _from_union(self, branches: list[Any], reader: AvroNode, path: str) -> Mismatch | None:
        found = [self.compare(branch, reader, path) for branch in branches]
        wrong = [each for each in found if each is not None]
        is_wrong = bool(wrong) if self._strict else len(wrong) == len(branches)
        return wrong[0] if wrong and is_wrong else None

    def _compare_complex(
        self, kind: str, writer: dict[str, Any], reader: dict[str, Any], path: str
    ) -> Mismatch | None:
        match kind:
            case "record" | "error":
                return self._compare_records(writer, reader, path)
            case "array":
                return self.compare(writer["items"], reader["items"], f"{path}[]")
            case "map":
                return self.compare(writer["values"], reader["values"], f"{path}{{}}")
            case "fixed" if writer["size"] != reader["size"]:
                return Mismatch(
                    path, f"{writer['size']} bytes of the writer are not {reader['size']}"
                )
            case "enum" if self._strict and "default" not in reader:
                known = set(reader["symbols"])
                missing = [each for each in writer["symbols"] if each not in known]
                if missing:
                    return Mismatch(path, f"the reader has neither {missing[0]} nor a default")
        return None

    def _compare_records(
        self, writer: dict[str, Any], reader: dict[str, Any], path: str
    ) -> Mismatch | None:
        pair = writer["name"], reader["name"]
        if pair in self._seen:
            return None
        self._seen.add(pair)
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = [field["name"], *field.get("aliases", ())]
            below = f"{path}.{field['name']}" if path else field["name"]
            source = next((written[name] for name in names if name in written), None)
            if source is None:
                if "default" in field:
                    continue
                return Mismatch(
                    below, "the writer's schema has no such field, and it has no default"
                )
            found = self.compare(source["type"], field["type"], below)
            if found is not None:
                return found
        return None


def find_unfit(value: Any, schema: AvroSchema) -> Mismatch | None:
    """Return the first part of a value that does not fit; None if none is found."""
    try:
        return _find(value, schema.root, "", schema.names)
    except _ERRORS:
        return None


def _find(value: Any, node: AvroNode, path: str, names: Mapping[str, AvroNode]) -> Mismatch | None:
    kind, definition = node_type(node, names)
    if isinstance(definition, list):
        return _find_in_union(value, definition, path, names)
    if kind not in _NESTED or not isinstance(definition, dict):
        # Imported only to explain an error: fastavro takes long to load.
        from fastavro.validation import validate

        fits = validate(value, definition, raise_errors=False)
        return None if fits else _mismatch(value, [_name(definition)], path)
    if not isinstance(value, _NESTED[kind]):
        return _mismatch(value, [_name(definition)], path)
    if kind == "array":
        parts = [(f"{path}[{n}]", part, definition["items"]) for n, part in enumerate(value)]
    elif kind == "map":
        parts = [(f"{path}{{{n}}}", part, definition["values"]) for n, part in value.items()]
    else:
        fields = {field["name"]: field for field in definition["fields"]}
        below = f"{path}." if path else ""
        for name, field in fields.items():
            if name not in value and "default" not in field:
                return Mismatch(f"{below}{name}", "it is missing, and has no default")
        for name in value:
            if name not in fields:
                return Mismatch(f"{below}{name}", "the schema has no such field")
        parts = [(f"{below}{n}", part, fields[n]["type"]) for n, part in value.items()]
    found = (_find(part, inner, place, names) for place, part, inner in parts)
    return next((each for each in found if each is not None), None)


def _find_in_union(
    value: Any, branches: list[Any], path: str, names: Mapping[str, AvroNode]
) -> Mismatch | None:
    found = [_find(value, branch, path, names) for branch in branches]
    if None in found:
        return None
    # A branch that fits but for a part of it says more than the list of branches.
    inner = [each for each in found if each is not None and each.field != path]
    if inner:
        return inner[0]
    return _mismatch(value, [_name(node_type(each, names)[1]) for each in branches], path)


def _mismatch(value: Any, wanted: list[str], path: str) -> Mismatch:
    return Mismatch(path, f"{repr(value)[:_SHOWN_CHARACTERS]} is not {' or '.join(wanted)}")


def _name(definition: AvroNode) -> str:
    if isinstance(definition, dict):
        return str(definition.get("name") or definition.get("logicalType") or definition["type"])
    return str(definition)
