"""A schema as a registry stores it, the names of its subjects, and its id before each record.

A subject name strategy is a function of the topic, "key" or "value", and the full name of the
record type. Names and results are those of Confluent's strategies: TopicNameStrategy (the default),
RecordNameStrategy and TopicRecordNameStrategy.

The wire format of Confluent's serializers is a zero byte, then the id of the schema in 4 bytes
(big-endian), then the payload. Protobuf adds the path to the message type within its file: the
number of indexes and the indexes themselves, each as a zigzag varint. The most frequent path, the
first message of the file, is a single zero byte.

A schema can make values of few bytes or none: nulls in a list, fields that are not set. So all
decoders have one limit for the values of a record, `values_limit`. JSON, and other formats that
describe themselves, need at least a byte for each value, and so never reach it. The names of fields
and of enum symbols are in the schema, and in the JSON of each value. So that JSON has a limit too,
`json_limit`.
Source: the page "Wire format" of the Schema Registry's documentation.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from barnabas.serializers.errors import SchemaError, WireFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

# (topic, "key" or "value", full name of the record type or "") -> subject.
SubjectName: TypeAlias = Callable[[str, str, str], str]
_MAGIC = 0
_HEADER = struct.Struct(">bI")
HEADER_BYTES = _HEADER.size
ID_MAX = (1 << 31) - 1
# Messages are nested far less deep; longer paths are damaged data.
_INDEXES_MAX = 64
_VARINT_BYTES_MAX = 10
# Limit for the values of a record: so many in any case, and so many for each byte.
_VALUES_MAX = 100_000
VALUES_PER_BYTE_MAX = 8
# Limit for the JSON of a record: so many bytes in any case, and so many for each byte.
_JSON_BYTES_MAX = 2 * 1024 * 1024
_JSON_BYTES_PER_BYTE_MAX = 64
# What JSON has for a member besides the name and the value: quotation marks, colon, comma, spaces.
MEMBER_BYTES = 6


def values_limit(size: int) -> int:
    """Return the limit for the number of values that a record of this many bytes makes.

    Values are those of all levels: lists, records, their fields, and defaults of fields.
    """
    return _VALUES_MAX + VALUES_PER_BYTE_MAX * size


def json_limit(size: int) -> int:
    """Return the limit for the JSON of a record of this many bytes."""
    return _JSON_BYTES_MAX + _JSON_BYTES_PER_BYTE_MAX * size


def too_much_json(size: int) -> WireFormatError:
    """Return the error of a record of this many bytes whose JSON exceeds the limit."""
    return WireFormatError(
        f"the record has more than {json_limit(size)} bytes as JSON, the limit for {size} bytes: "
        f"the names of its fields, or its enum symbols, are long and many"
    )


def check_json_size(value: Any, size: int) -> None:
    """Check how large the JSON of a decoded value is, before it is made.

    Args:
        value: Lists, dictionaries, and values in them. They may share names and texts.
        size: Number of bytes of the record.

    Raises:
        WireFormatError: The JSON exceeds the limit for the record.
    """
    limit, length, level = json_limit(size), 0, [value]
    while level:
        # The loops are those of built-in functions: a record may have a million values.
        objects = [each for each in level if each.__class__ is dict]
        lists = [each for each in level if each.__class__ is list or each.__class__ is tuple]
        texts = [each for each in level if each.__class__ is str or each.__class__ is bytes]
        length += len(level) + MEMBER_BYTES * sum(map(len, objects))
        length += sum(map(len, map(str, chain.from_iterable(objects)))) + sum(map(len, texts))
        if length > limit:
            raise too_much_json(size)
        level = [*chain.from_iterable(map(dict.values, objects)), *chain.from_iterable(lists)]


class SchemaType(enum.StrEnum):
    """The types of schemas, by their names in the registry's protocol."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class SchemaReference(msgspec.Struct, frozen=True):
    """A schema that another one uses: an import of Protobuf, a $ref, a named Avro type."""

    # The name in the schema that refers: the imported path, the URI, or the full Avro name.
    name: str
    subject: str
    version: int


class Schema(msgspec.Struct, frozen=True):
    """A schema.

    Attributes:
        text: Avro and JSON Schema: JSON. Protobuf: the .proto file, or its FileDescriptorProto in
            base64, as confluent-kafka registers it.
        kind: The type.
        references: The schemas that the text refers to.
    """

    text: str
    kind: SchemaType = SchemaType.AVRO
    references: tuple[SchemaReference, ...] = ()


class RegisteredSchema(msgspec.Struct, frozen=True):
    """A version of a subject."""

    subject: str
    version: int
    schema_id: int
    schema: Schema


def schema_text(schema: str | dict[str, Any] | list[Any]) -> str:
    """Return the JSON text of a schema that is given as text or as a value of Python."""
    return schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()


def topic_name(topic: str, part: str, _record: str) -> str:
    """Return TOPIC-key or TOPIC-value: one schema, with its versions, per topic."""
    return f"{topic}-{part}"


def record_name(_topic: str, _part: str, record: str) -> str:
    """Return the name of the record type: the same schema in all topics.

    Raises:
        SchemaError: The schema has no name.
    """
    return _named(record)


def topic_record_name(topic: str, _part: str, record: str) -> str:
    """Return TOPIC-RECORD: several record types in one topic.

    Raises:
        SchemaError: The schema has no name.
    """
    return f"{topic}-{_named(record)}"


def _named(record: str) -> str:
    if not record:
        raise SchemaError(
            "the schema has no name for its subject: give it one (JSON Schema: a title), or use "
            "the strategy topic_name"
        )
    return record


def encode_header(schema_id: int) -> bytes:
    """Return the bytes before the payload."""
    assert 0 <= schema_id <= ID_MAX, schema_id
    return _HEADER.pack(_MAGIC, schema_id)


def schema_id_of(data: bytes) -> int:
    """Return the id of the schema with which a record was written.

    Raises:
        WireFormatError: The bytes do not begin with such an id.
    """
    if len(data) < HEADER_BYTES:
        raise WireFormatError(
            f"{len(data)} byte(s) are too few for a schema id: the record was not written by a "
            f"serializer of a schema registry"
        )
    magic, schema_id = _HEADER.unpack_from(data)
    if magic != _MAGIC or schema_id > ID_MAX:
        raise WireFormatError(
            f"the record begins with {bytes(data[:HEADER_BYTES])!r} instead of a zero byte and a "
            f"schema id: it was not written by a serializer of a schema registry"
        )
    return int(schema_id)


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """Return the path to a Protobuf message type: (0,) is the first message of the file."""
    if tuple(indexes) == (0,):
        return b"\x00"
    return b"".join(map(_encode_varint, (len(indexes), *indexes)))


def decode_indexes(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Return the path to a Protobuf message type, and the position of the payload.

    Raises:
        WireFormatError: The bytes are no path.
    """
    # Without this, a small message takes a third more time to decode.
    if data[position : position + 1] == b"\x00":
        return (0,), position + 1
    count, position = read_varint(data, position)
    if count == 0:
        return (0,), position
    if not 0 < count <= _INDEXES_MAX:
        raise WireFormatError(f"{count} message indexes: the limit is {_INDEXES_MAX}")
    indexes = []
    for _ in range(count):
        index, position = read_varint(data, position)
        if index < 0:
            raise WireFormatError(f"message index {index} is negative")
        indexes.append(index)
    return tuple(indexes), position


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag varint of at most 64 bits, and the position after it.

    Raises:
        WireFormatError: The bytes end too early, or the number is too long.
    """
    number = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        if position >= len(data):
            raise WireFormatError("the record ends within a number")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise WireFormatError(f"a number has more than {_VARINT_BYTES_MAX} bytes")


def _encode_varint(number: int) -> bytes:
    left = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)
