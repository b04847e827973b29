"""Protobuf messages as Arrow columns: the types, and the arrays, which are made field by field.

The types and the rules for absent fields are those of Spark's `from_protobuf`: an enum is the name
of its value, a field that the bytes do not contain is null, and a message without fields is left
out. Source: the page "Protobuf Data Source Guide" of Spark's documentation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor

from barnabas.serializers.decoded_column import ColumnDecoder
from barnabas.serializers.errors import SchemaError, SchemaMismatchError, WireFormatError
from barnabas.serializers.protobuf import ProtobufDeserializer, RecordLimit
from barnabas.serializers.schema import HEADER_BYTES, decode_indexes, schema_id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from google.protobuf.descriptor import Descriptor, EnumDescriptor
    from google.protobuf.message import Message

    from barnabas.serializers.registry import SchemaRegistry

    # From the values of a field to their array; None is null.
    ToArray = Callable[[list[Any]], pa.Array]
    # From messages to the values of one of their fields.
    Extract = Callable[[Sequence[Any]], list[Any]]


# Limit for messages within messages, as for Avro.
_DEPTH_MAX = 50
# A message type that is used again makes columns again, so that a small schema could make 2^50.
_COLUMNS_MAX = 10_000
_SCALARS = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    # As in Java, which has no unsigned numbers: those over the largest number are negative.
    FieldDescriptor.CPPTYPE_UINT32: pa.int32(),
    FieldDescriptor.CPPTYPE_UINT64: pa.int64(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}
_UNSIGNED = {
    FieldDescriptor.CPPTYPE_UINT32: pa.uint32(),
    FieldDescriptor.CPPTYPE_UINT64: pa.uint64(),
}
_FLOATS = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)
_TIMES = {
    "Timestamp": pa.timestamp("us", "UTC"),
    "Duration": pa.duration("us"),
}
_TIME_FIELDS = [
    ("seconds", FieldDescriptor.TYPE_INT64, False),
    ("nanos", FieldDescriptor.TYPE_INT32, False),
]
_UNFIT = (OverflowError, pa.ArrowInvalid)


def arrow_type(message: Descriptor) -> pa.DataType:
    """Return the Arrow type of a message type, a struct.

    Raises:
        SchemaError: The message type contains itself, has no fields or too many columns.
    """
    found = _Types().struct(message, "", ())
    if found is None:
        raise SchemaError(
            f"the message {message.full_name} has no fields, so that it has no columns"
        )
    return found


class _Types:
    """Finds the types of fields, and counts the columns."""

    def __init__(self) -> None:
        self._columns = 0

    def struct(
        self, message: Descriptor, path: str, outer: tuple[Descriptor, ...]
    ) -> pa.DataType | None:
        """Return the type of a message; None for a message without fields.

        Args:
            message: The message type.
            path: The field with the message, for errors.
            outer: The message types that contain this field.
        """
        if message in outer:
            raise SchemaError(
                f"field {path}: the message {message.full_name} contains itself, so that it has no "
                f"columns; give a reader's schema without this field"
            )
        if len(outer) > _DEPTH_MAX:
            raise SchemaError(f"field {path[:100]}…: messages are nested over {_DEPTH_MAX} deep")
        fields = []
        for field in message.fields:
            below = f"{path}.{field.name}" if path else field.name
            kind = self._field(field, below, (*outer, message))
            if kind is not None:
                fields.append((field.name, kind))
        return pa.struct(fields) if fields else None

    def _field(
        self, field: FieldDescriptor, path: str, outer: tuple[Descriptor, ...]
    ) -> pa.DataType | None:
        self._columns += 1
        if self._columns > _COLUMNS_MAX:
            raise SchemaError(
                f"the Protobuf schema makes more than {_COLUMNS_MAX} columns; give a reader's "
                f"schema with fewer fields"
            )
        if _is_map(field):
            key, value = field.message_type.fields
            item = self._single(value, f"{path}{{}}", outer)
            return None if item is None else pa.map_(_SCALARS[key.cpp_type], item)
        if field.is_repeated:
            item = self._single(field, f"{path}[]", outer)
            return None if item is None else pa.list_(item)
        return self._single(field, path, outer)

    def _single(
        self, field: FieldDescriptor, path: str, outer: tuple[Descriptor, ...]
    ) -> pa.DataType | None:
        if field.message_type is not None:
            time = _time_type(field.message_type)
            return self.struct(field.message_type, path, outer) if time is None else time
        if field.type == FieldDescriptor.TYPE_BYTES:
            return pa.binary()
        return _SCALARS[field.cpp_type]


class ProtobufColumn(ColumnDecoder):
    """Converts the Protobuf records of one column.

    Args:
        registry: The registry with the schemas of the records.
        message: The class to which all records are converted.
        target: The type of the arrays, equal to `arrow_type` apart from nullability; None for
            `arrow_type`.
        with_defaults: Whether a field of which the bytes do not tell whether it was set has its
            default value, instead of null.

    Raises:
        SchemaError: The message type has no Arrow type.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        message: type[Message],
        target: pa.DataType | None = None,
        *,
        with_defaults: bool = False,
    ) -> None:
        descriptor = message.DESCRIPTOR
        found = arrow_type(descriptor)
        self.type = found if target is None else target
        self._deserialize = ProtobufDeserializer(registry, message)
        self._limit = RecordLimit(descriptor)
        self._to_array = _struct(descriptor, self.type, "", with_defaults)
        self._has_required = _has_required(descriptor)

    def decode(self, data: bytes) -> Message | None:
        """Return the message of a record.

        Raises:
            SchemaError: The record cannot be decoded.
            RegistryError: The registry was not reached, or refused a request.
        """
        if self._limit.is_exceedable(len(data)):
            schema_id_of(data)
            _, position = decode_indexes(data, HEADER_BYTES)
            self._limit.check(data, position)
        message: Message | None = self._deserialize(data)
        if self._has_required and message is not None and not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors()[:5])
            raise WireFormatError(f"the record lacks the required field {missing}")
        return message

    def array(self, values: list[Any]) -> pa.Array:
        """Return the array of messages.

        Raises:
            SchemaMismatchError: A value does not fit its column; the error names the field.
        """
        return self._to_array(values)


def _has_required(message: Descriptor) -> bool:
    """Return whether a message, or a message in it, has required fields."""
    return any(
        field.is_required or (field.message_type is not None and _has_required(field.message_type))
        for field in message.fields
    )


@dataclass(frozen=True, slots=True)
class _Column:
    """One field of a struct."""

    path: str
    extract: Extract
    to_array: ToArray

    def array(self, messages: Sequence[Any]) -> pa.Array:
        """Return the values of the field in all messages."""
        try:
            return self.to_array(self.extract(messages))
        except _UNFIT as error:
            raise SchemaMismatchError(
                f"field {self.path}: the value does not fit its column: {error}"[:500], self.path
            ) from None


def _struct(message: Descriptor, kind: pa.DataType, path: str, with_defaults: bool) -> ToArray:
    """Return the function for messages; None is a message that is absent."""
    fields = list(kind)
    by_name = message.fields_by_name
    columns = [_column(by_name[each.name], each.type, path, with_defaults) for each in fields]
    empty = message_factory.GetMessageClass(message)()

    def to_array(values: list[Any]) -> pa.Array:
        absent = [value is None for value in values]
        mask = None
        if any(absent):
            mask = pa.array(absent, pa.bool_())
            values = [empty if value is None else value for value in values]
        arrays = [column.array(values) for column in columns]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)

    return to_array


def _column(field: FieldDescriptor, kind: pa.DataType, outer: str, with_defaults: bool) -> _Column:
    path = f"{outer}.{field.name}" if outer else field.name
    if _is_map(field):
        key, value = field.message_type.fields
        return _Column(
            path,
            _extract_all(field.name),
            _map(
                kind,
                _values(key, kind.key_type, path, with_defaults),
                _values(value, kind.item_type, f"{path}{{}}", with_defaults),
            ),
        )
    if field.is_repeated:
        items = _values(field, kind.value_type, f"{path}[]", with_defaults)
        return _Column(path, _extract_all(field.name), _list(kind, items))
    return _Column(
        path, _extract_one(field, with_defaults), _values(field, kind, path, with_defaults)
    )


def _extract_all(name: str) -> Extract:
    get = attrgetter(name)
    return lambda messages: list(map(get, messages))


def _extract_one(field: FieldDescriptor, with_defaults: bool) -> Extract:
    """Return the function for a field that is not repeated; None is a value that is absent."""
    name, get = field.name, attrgetter(field.name)
    if field.has_default_value or field.is_required or (with_defaults and not field.has_presence):
        return _extract_all(name)
    if field.has_presence:
        # Of the class: a field may have the name of the method.
        has: Any = message_factory.GetMessageClass(field.containing_type).HasField
        return lambda messages: [get(each) if has(each, name) else None for each in messages]
    if field.cpp_type in _FLOATS:
        # Only the positive zero is not written.
        return lambda messages: [
            value if value or math.copysign(1.0, value) < 0 else None
            for value in map(get, messages)
        ]
    return lambda messages: [get(each) or None for each in messages]


def _values(field: FieldDescriptor, kind: pa.DataType, path: str, with_defaults: bool) -> ToArray:
    """Return the function for the values of a field; for a repeated field, for their elements."""
    if field.message_type is not None:
        if _time_type(field.message_type) is not None:
            return lambda values: pa.array(
                [None if each is None else _microseconds(each) for each in values], pa.int64()
            ).view(kind)
        return _struct(field.message_type, kind, path, with_defaults)
    if field.enum_type is not None:
        names = _EnumNames(field.enum_type)
        return lambda values: pa.array(
            [None if each is None else names[each] for each in values], kind
        )
    unsigned = _UNSIGNED.get(field.cpp_type)
    if unsigned is not None:
        return lambda values: pa.array(values, unsigned).view(kind)
    return lambda values: pa.array(values, kind)


def _list(kind: pa.DataType, items: ToArray) -> ToArray:
    def to_array(values: list[Any]) -> pa.Array:
        offsets = _offsets(values)
        flat = [item for value in values for item in value]
        return pa.ListArray.from_arrays(offsets, items(flat), type=kind)

    return to_array


def _map(kind: pa.DataType, keys: ToArray, items: ToArray) -> ToArray:
    def to_array(values: list[Any]) -> pa.Array:
        offsets = _offsets(values)
        flat = [entry for value in values for entry in value.items()]
        return pa.MapArray.from_arrays(
            offsets, keys([key for key, _ in flat]), items([item for _, item in flat]), type=kind
        )

    return to_array


def _offsets(values: Iterable[Any]) -> pa.Array:
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    return pa.array(offsets, pa.int32())


def _time_type(message: Descriptor) -> pa.DataType | None:
    """Return the type of a Timestamp or a Duration; None for other messages.

    The package does not count, as in Spark, but the fields do: they are those of
    `google.protobuf.Timestamp`.
    """
    fields = [(each.name, each.type, each.is_repeated) for each in message.fields]
    return _TIMES.get(message.name) if fields == _TIME_FIELDS else None


def _microseconds(time: Any) -> int:
    """Return a Timestamp or a Duration in microseconds, without the rest, as Java divides."""
    return int(time.seconds) * 1_000_000 + int(time.nanos / 1000)


class _EnumNames(dict[int, str]):
    """The names of an enum's values. A number without a name has the name that Java gives it."""

    def __init__(self, enum: EnumDescriptor) -> None:
        super().__init__()
        self._enum = enum.name
        for value in enum.values:
            # The first one of several names.
            self.setdefault(value.number, value.name)

    def __missing__(self, number: int) -> str:
        return f"UNKNOWN_ENUM_VALUE_{self._enum}_{number}"


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return bool(field.is_repeated and kind is not None and kind.GetOptions().map_entry)
