"""Protobuf with a schema registry: `ProtobufSerializer` and `ProtobufDeserializer`.

Generated classes are not needed: message classes are made of the schema in the registry. With a
generated class, its values are that class. Source: the wire format in `schema`.

What the bytes of a message can become is limited before they are decoded. An empty message takes
two bytes in a repeated field, but as many columns as its type has. So a small record of a wide type
could fill the memory of a reader. Types without repeated messages are not checked, nor are records
that are too short to exceed the limit.
Source: the page "Encoding" of Protobuf's documentation.
"""

from __future__ import annotations

import base64
import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from google.protobuf import message_factory
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError, EncodeError, Message

from barnabas.serializers.errors import (
    SchemaMismatchError,
    WireFormatError,
)
from barnabas.serializers.lookups import SchemaDeserializer, SchemaSerializer
from barnabas.serializers.proto_text import UnsupportedProtoError
from barnabas.serializers.proto_types import (
    ProtoTypes,
    find_change,
    find_lost_field,
    is_well_known,
    message_indexes,
)
from barnabas.serializers.schema import (
    HEADER_BYTES,
    MEMBER_BYTES,
    Schema,
    SchemaReference,
    SchemaType,
    decode_indexes,
    encode_header,
    encode_indexes,
    json_limit,
    too_much_json,
    values_limit,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

    from barnabas.serializers.lookups import SerializerOptions
    from barnabas.serializers.registry import SchemaRegistry

# The bytes of an empty message in a repeated field: the tag and the length.
_MESSAGE_BYTES_MIN = 2
_VARINT_BYTES_MAX = 10


class ProtobufSerializer(SchemaSerializer):
    """Serialize messages, or dictionaries in the form of Protobuf's JSON.

    Args:
        registry: The registry.
        message: A generated message class, whose file is registered with the files it imports. Or
            the name of a message of `schema`; by default its first message.
        schema: .proto text, or a `Schema` if it has imports. None: the file of the generated class,
            or the latest schema of the subject.
        options: How the schema is found in the registry; see `SerializerOptions`.

    Raises:
        SchemaError: The schema is invalid, or has no such message.
        RegistryError: A reference was not found.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        message: type[Message] | str | None = None,
        schema: str | Schema | None = None,
        **options: Unpack[SerializerOptions],
    ) -> None:
        if isinstance(schema, str):
            schema = Schema(schema, SchemaType.PROTOBUF)
        super().__init__(registry, schema, options)
        self._name = message if isinstance(message, str) else ""
        self._class: type[Message] | None = message if isinstance(message, type) else None
        if schema is not None and self._class is None:
            self._class = self._class_of(schema)

    @property
    def record_name(self) -> str:
        """The full name of the message type."""
        return self._name if self._class is None else self._class.DESCRIPTOR.full_name

    def encoder(self, subject: str) -> Callable[[Any], bytes]:
        """Register the schema; return a function from a message to a record's bytes."""
        if self._schema is None and self._class is not None:
            self._schema = self._registered_file(self._class.DESCRIPTOR.file)
        schema_id, schema = self.registered(subject)
        kind = self._class or self._class_of(schema)
        descriptor = kind.DESCRIPTOR
        header = encode_header(schema_id) + encode_indexes(message_indexes(descriptor))

        def encode(value: Any) -> bytes:
            try:
                if isinstance(value, dict):
                    value = ParseDict(value, kind(), descriptor_pool=descriptor.file.pool)
                elif not isinstance(value, Message) or (
                    value.DESCRIPTOR.full_name != descriptor.full_name
                ):
                    raise SchemaMismatchError(
                        f"{type(value).__name__} is neither a {descriptor.full_name} nor a "
                        f"dictionary"
                    )
                return header + bytes(value.SerializeToString())
            except (ParseError, EncodeError, RecursionError) as error:
                reason = " ".join(str(error).split())
                raise SchemaMismatchError(
                    f"the value does not fit the message {descriptor.full_name}: {reason}"[:500]
                ) from None

        return encode

    def conflict(self, subject: str) -> str | None:
        """Return the field of the schema that is not compatible with the latest one."""
        assert self._class is not None
        latest = self.registry.latest(subject).schema
        types = ProtoTypes(latest, self.registry.referenced(latest))
        return find_change(types.file, self._class.DESCRIPTOR.file)

    def _class_of(self, schema: Schema) -> type[Message]:
        types = ProtoTypes(schema, self.registry.referenced(schema))
        return types.named(self._name) if self._name else types.message_class()

    def _registered_file(self, file: FileDescriptor) -> Schema:
        """Return the schema of a generated file; register the files that it imports first."""
        references = []
        for each in file.dependencies:
            if is_well_known(each.name):
                continue
            imported = self._registered_file(each)
            if self._options.get("auto_register", True):
                self.registry.register(each.name, imported)
            version = self.registry.find(each.name, imported).version
            references.append(SchemaReference(each.name, each.name, version))
        text = base64.b64encode(file.serialized_pb).decode()
        return Schema(text, SchemaType.PROTOBUF, tuple(references))


class ProtobufDeserializer(SchemaDeserializer):
    """Deserialize messages.

    Args:
        registry: The registry.
        message: A generated class, to which all records are converted. None: a class that is made
            of the schema of each record.
        for_json: Whether records with too many fields for `message_as_json` are refused before they
            fill the memory.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        message: type[Message] | None = None,
        *,
        for_json: bool = False,
    ) -> None:
        super().__init__(registry)
        self._class = message
        self._for_json = for_json

    def decoder(self, schema_id: int, schema: Schema) -> Callable[[bytes], Any]:
        """Return a function from the bytes of a record to its message."""
        target = self._class
        types: ProtoTypes | None = None
        try:
            types = ProtoTypes(schema, self.registry.referenced(schema))
        except UnsupportedProtoError:
            if target is None:
                raise

        def class_at(indexes: tuple[int, ...]) -> type[Message]:
            if types is None:
                assert target is not None
                return target
            written = types.message_class(indexes)
            if target is None:
                return written
            name, wanted = written.DESCRIPTOR.full_name, target.DESCRIPTOR.full_name
            if name != wanted:
                raise SchemaMismatchError(f"the record is a {name}, not a {wanted}")
            if indexes not in lost:
                lost[indexes] = find_lost_field(written.DESCRIPTOR, target.DESCRIPTOR)
            problem = lost[indexes]
            if problem is not None:
                raise SchemaMismatchError(problem)
            return target

        # By the path of a message that the schema has.
        known: dict[tuple[int, ...], type[Message]] = {}
        lost: dict[tuple[int, ...], str | None] = {}
        limits: dict[tuple[int, ...], FieldLimit] = {}

        def decode(data: bytes) -> Message:
            indexes, position = decode_indexes(data, HEADER_BYTES)
            kind = known.get(indexes)
            if kind is None:
                kind = known[indexes] = class_at(indexes)
                if self._for_json:
                    limits[indexes] = FieldLimit(kind.DESCRIPTOR)
            if self._for_json and limits[indexes].is_exceeded(data, position):
                raise _too_many_fields(len(data) - position)
            try:
                return kind.FromString(bytes(data[position:]))
            except DecodeError as error:
                raise WireFormatError(
                    f"the bytes are no {kind.DESCRIPTOR.full_name}, the message of schema id "
                    f"{schema_id}: {error}"
                ) from None

        return decode


def json_decoder(kind: type[Message]) -> Callable[[bytes], dict[str, Any]]:
    """Return a function from the bytes of a message of this type, without a schema id, to JSON.

    The function raises `WireFormatError`, as `message_as_json` does.
    """
    limit = FieldLimit(kind.DESCRIPTOR)

    def decode(data: bytes) -> dict[str, Any]:
        if limit.is_exceeded(data, 0):
            raise _too_many_fields(len(data))
        try:
            message = kind.FromString(data)
        except DecodeError as error:
            name = kind.DESCRIPTOR.full_name
            raise WireFormatError(f"the bytes are no {name}: {error}") from None
        return message_as_json(message)

    return decode


def message_as_json(message: Message) -> dict[str, Any]:
    """Return a message in Protobuf's JSON mapping, with the names of the schema and all defaults.

    Raises:
        WireFormatError: The message has a part without such a form, too many fields, or too long
            names for them.
    """
    _check_size(message)
    try:
        found: dict[str, Any] = MessageToDict(
            message,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            descriptor_pool=message.DESCRIPTOR.file.pool,
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise WireFormatError(f"the message cannot be shown as JSON: {error}") from None
    return found


class _Shape(NamedTuple):
    """What a message of a type without content has as JSON."""

    fields: int
    # Bytes of the names, and of the enum symbols that are defaults.
    length: int


def _shape(kind: Descriptor) -> _Shape:
    fields = kind.fields
    names = sum(len(each.name) + MEMBER_BYTES for each in fields)
    symbols = (each.enum_type.values[0].name for each in fields if each.enum_type is not None)
    return _Shape(len(fields), names + sum(map(len, symbols)))


def _check_size(message: Message) -> None:
    """Check the fields with their defaults, which two bytes of a record can make, and their names.

    The names are counted before the JSON is made: each message has them anew.
    """
    shapes: dict[Descriptor, _Shape] = {}
    size = message.ByteSize()
    limit, bytes_limit = values_limit(size), json_limit(size)
    count, length, pending = 0, 0, [message]
    while pending:
        each = pending.pop()
        kind = each.DESCRIPTOR
        shape = shapes.get(kind)
        if shape is None:
            shape = shapes[kind] = _shape(kind)
        count += shape.fields
        length += shape.length
        if count > limit:
            raise _too_many_fields(size)
        if kind.full_name == "google.protobuf.Any":
            pending += _packed(each)
            continue
        for field, value in each.ListFields():
            length += _symbols_length(field, value)
            pending += _messages_of(field, value)
        if length > bytes_limit:
            raise too_much_json(size)


def _messages_of(field: FieldDescriptor, value: Any) -> Iterable[Message]:
    """Return the messages that are the value of a field."""
    if field.message_type is None:
        return ()
    if isinstance(value, Message):
        return (value,)
    if field.message_type.GetOptions().map_entry:
        return [inner for inner in value.values() if isinstance(inner, Message)]
    found: Iterable[Message] = value
    return found


def _symbols_length(field: FieldDescriptor, value: Any) -> int:
    """Return the length of the enum symbols that are the value of a field."""
    kind, values = field.enum_type, value
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        kind, values = field.message_type.fields_by_name["value"].enum_type, value.values()
    if kind is None:
        return 0
    numbers = Counter(values if field.is_repeated else (values,))
    known = kind.values_by_number
    return sum(len(known[each].name) * times for each, times in numbers.items() if each in known)


def _too_many_fields(size: int) -> WireFormatError:
    return WireFormatError(
        f"the message has more than {values_limit(size)} fields with their defaults, the limit for "
        f"{size} bytes, so that it is not shown as JSON"
    )


def _packed(message: Any) -> list[Message]:
    """Return the message in an Any; nothing if its type is unknown or its bytes are damaged."""
    name = message.type_url.rpartition("/")[2]
    try:
        kind = message.DESCRIPTOR.file.pool.FindMessageTypeByName(name)
        return [message_factory.GetMessageClass(kind).FromString(message.value)]
    except (KeyError, DecodeError):
        return []


@dataclass(slots=True)
class _Node:
    """A message type, or the type of one field with messages."""

    # The columns that one more message makes; 0 if the field is not repeated.
    columns: int = 0
    # The fields with messages, by number.
    children: dict[int, _Node] = dataclasses.field(default_factory=dict)


_UNKNOWN = _Node()


class RecordLimit:
    """Checks the records of one message type.

    Args:
        message: The message type, which does not contain itself.
    """

    def __init__(self, message: Descriptor) -> None:
        # The columns of the widest repeated message; 0 without one.
        self._widest = 0
        self._root = self._node(message, 0)

    def _node(self, message: Descriptor, columns: int) -> _Node:
        self._widest = max(self._widest, columns)
        node = _Node(columns)
        for each in message.fields:
            inner = each.message_type
            if inner is not None:
                added = _width(inner) if each.is_repeated else 0
                node.children[each.number] = self._node(inner, added)
        return node

    def is_exceedable(self, size: int) -> bool:
        """Return whether a record of this many bytes may exceed the limit."""
        return size // _MESSAGE_BYTES_MIN * self._widest > values_limit(size)

    def check(self, data: bytes, position: int) -> None:
        """Check the message that begins at a position.

        Damaged bytes are not an error here; the decoder does not read beyond them either.

        Raises:
            WireFormatError: The record has too many repeated messages for its size.
        """
        limit = values_limit(len(data) - position)
        if _count(data, position, self._root, limit) > limit:
            raise WireFormatError(
                f"the repeated messages of the record make more than {limit} columns, the limit "
                f"for {len(data)} bytes"
            )


class FieldLimit:
    """Checks the number of fields in all messages of a record, with those that are not set.

    Args:
        message: The message type of the record, which may contain itself.
    """

    def __init__(self, message: Descriptor) -> None:
        nodes = {message.full_name: _Node(len(message.fields))}
        pending = [message]
        while pending:
            outer = pending.pop()
            for each in outer.fields:
                inner = each.message_type
                if inner is None:
                    continue
                if inner.full_name not in nodes:
                    nodes[inner.full_name] = _Node(len(inner.fields))
                    pending.append(inner)
                nodes[outer.full_name].children[each.number] = nodes[inner.full_name]
        self._root = nodes[message.full_name]
        self._widest = max(each.columns for each in nodes.values())

    def is_exceeded(self, data: bytes, position: int) -> bool:
        """Return whether the message that begins at a position has more fields.

        Damaged bytes are not an error here; the decoder does not read beyond them either.
        """
        size = len(data) - position
        limit = values_limit(size)
        if size // _MESSAGE_BYTES_MIN * self._widest <= limit:
            return False
        return _count(data, position, self._root, limit) > limit


def _width(message: Descriptor) -> int:
    """Return the columns of a message, with those of the messages that are not repeated."""
    return sum(map(_field_width, message.fields))


def _field_width(each: FieldDescriptor) -> int:
    inner = each.message_type
    return 1 if inner is None or each.is_repeated else 1 + _width(inner)


def _count(data: bytes, position: int, node: _Node, limit: int) -> int:
    """Return the columns of all repeated messages; stop above the limit or at damaged bytes."""
    end, count = len(data), 0
    outer: list[tuple[_Node, int]] = []
    while True:
        while position >= end:
            if not outer:
                return count
            node, end = outer.pop()
        tag, position = _varint(data, position)
        child = node.children.get(tag >> 3)
        match tag & 7:
            case 0:  # varint
                _, position = _varint(data, position)
            case 1:  # 64 bits
                position += 8
            case 5:  # 32 bits
                position += 4
            case 2:  # bytes, text or a message
                length, position = _varint(data, position)
                if length > end - position:
                    return count
                if child is None:
                    position += length
                    continue
                outer.append((node, end))
                node, end = child, position + length
                count += child.columns
            case 3:  # begin of a group
                outer.append((node, end))
                node = child or _UNKNOWN
                count += node.columns
            case 4 if outer:  # end of a group
                node, end = outer.pop()
            case _:
                return count
        if count > limit:
            return count


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return an unsigned varint and the position after it; the end of damaged bytes."""
    number = 0
    for index, byte in enumerate(data[position : position + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, position + index + 1
    return 0, len(data)
