"""Values to bytes and back: what `key_serializer`, `value_deserializer` and their twins take.

Each is a plain function of one value, so that a user's own is written as fast as a lambda. The
formats are those of Kafka's serializers of the same names, which Java has in its package
`common.serialization`: what Java wrote is read here, and the other way round. None is null both
ways: a missing key, or a tombstone. JSON is UTF-8 without spaces, as nearly everyone writes it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

import msgspec

T = TypeVar("T")

# The type of a producer's serializer: a value to its bytes. It may raise anything; the producer
# says where.
Serializer: TypeAlias = Callable[[Any], "bytes | None"]
# The type of a consumer's deserializer: bytes, or None for null, to a value.
Deserializer: TypeAlias = Callable[["bytes | None"], Any]

_json_encoder = msgspec.json.Encoder()
_json_decoder = msgspec.json.Decoder()


def serialize_bytes(value: bytes | bytearray | memoryview | None) -> bytes | None:
    """The bytes as they are.

    Raises:
        TypeError: no bytes; text is for `serialize_string`.
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise _wrong_type("bytes", value)


def deserialize_bytes(data: bytes | None) -> bytes | None:
    """The bytes as they are."""
    return data


def serialize_string(value: str | None) -> bytes | None:
    """Text as UTF-8.

    Raises:
        TypeError: no text.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise _wrong_type("a string", value)
    return value.encode()


def deserialize_string(data: bytes | None) -> str | None:
    """Text of UTF-8.

    Raises:
        UnicodeDecodeError: the bytes are no UTF-8. Java puts U+FFFD for them; that loses data.
    """
    return None if data is None else data.decode()


def serialize_json(value: Any) -> bytes | None:
    """Anything that JSON can hold, dataclasses, times, UUIDs and `msgspec` structs too.

    Raises:
        TypeError: something that JSON cannot hold, such as a set of objects.
    """
    return None if value is None else _json_encoder.encode(value)


def deserialize_json(data: bytes | None) -> Any:
    """The content of the JSON, as dictionaries, lists, strings, numbers, booleans and None.

    Raises:
        msgspec.DecodeError: a ValueError; the bytes are no JSON.
    """
    return None if data is None else _json_decoder.decode(data)


def deserialize_json_as(kind: type[T]) -> Callable[[bytes | None], T | None]:
    """A deserializer that makes a dataclass, a TypedDict or a `msgspec` struct, and checks it.

    The function it returns raises `msgspec.ValidationError`, a ValueError, where the JSON does not
    fit; the message names the field.
    """
    decoder = msgspec.json.Decoder(kind)

    def deserialize(data: bytes | None) -> T | None:
        return None if data is None else decoder.decode(data)

    return deserialize


N = TypeVar("N", int, float)


class _Number(Generic[N]):
    """The two functions of a kind of number, big-endian, in so many bytes."""

    def __init__(self, layout: str, kind: str) -> None:
        self._layout = struct.Struct(layout)
        self._kind = kind

    def serialize(self, value: N | None) -> bytes | None:
        """Its bytes.

        Raises:
            ValueError: the number does not fit into them.
        """
        if value is None:
            return None
        try:
            return self._layout.pack(value)
        except (struct.error, OverflowError):
            size = self._layout.size
            raise ValueError(f"{value!r} is not {self._kind} of {size} bytes") from None

    def deserialize(self, data: bytes | None) -> N | None:
        """The number.

        Raises:
            ValueError: another number of bytes.
        """
        if data is None:
            return None
        if len(data) != self._layout.size:
            raise ValueError(f"{self._kind} is {self._layout.size} bytes; this is {_shown(data)}")
        number: N = self._layout.unpack(data)[0]
        return number


_SHORT: _Number[int] = _Number(">h", "a short")
_INTEGER: _Number[int] = _Number(">i", "an integer")
_LONG: _Number[int] = _Number(">q", "a long")
_FLOAT: _Number[float] = _Number(">f", "a float")
_DOUBLE: _Number[float] = _Number(">d", "a double")

# Signed, of 2, 4 and 8 bytes.
serialize_short, deserialize_short = _SHORT.serialize, _SHORT.deserialize
serialize_integer, deserialize_integer = _INTEGER.serialize, _INTEGER.deserialize
serialize_long, deserialize_long = _LONG.serialize, _LONG.deserialize
# IEEE 754, of 4 and 8 bytes.
serialize_float, deserialize_float = _FLOAT.serialize, _FLOAT.deserialize
serialize_double, deserialize_double = _DOUBLE.serialize, _DOUBLE.deserialize


def serialize_boolean(value: bool | None) -> bytes | None:
    """One byte, 1 or 0.

    Raises:
        TypeError: neither True nor False.
    """
    if value is None:
        return None
    if not isinstance(value, bool):
        raise _wrong_type("True or False", value)
    return b"\x01" if value else b"\x00"


def deserialize_boolean(data: bytes | None) -> bool | None:
    """True or False of one byte.

    Raises:
        ValueError: anything but one byte of 1 or 0.
    """
    if data is None:
        return None
    if data not in (b"\x00", b"\x01"):
        raise ValueError(f"a boolean is one byte, 0 or 1; this is {_shown(data)}")
    return data == b"\x01"


def serialize_uuid(value: UUID | None) -> bytes | None:
    """Its 36 characters, as Kafka's.

    Raises:
        TypeError: no `uuid.UUID`.
    """
    if value is None:
        return None
    if not isinstance(value, UUID):
        raise _wrong_type("a uuid.UUID", value)
    return str(value).encode()


def deserialize_uuid(data: bytes | None) -> UUID | None:
    """The UUID of 36 characters.

    Raises:
        ValueError: the bytes are none.
    """
    if data is None:
        return None
    try:
        return UUID(data.decode())
    except ValueError:
        raise ValueError(f"no UUID: {_shown(data)}") from None


def serialize_void(value: None) -> None:
    """Nothing but None, which is null.

    Raises:
        TypeError: anything else.
    """
    if value is not None:
        raise _wrong_type("None", value)


def deserialize_void(data: bytes | None) -> None:
    """Nothing but null.

    Raises:
        ValueError: there are bytes.
    """
    if data is not None:
        raise ValueError(f"void is null; this is {_shown(data)}")


def _wrong_type(wanted: str, value: object) -> TypeError:
    return TypeError(f"{wanted} is wanted, not {type(value).__name__} {str(value)[:40]!r}")


def _shown(data: bytes) -> str:
    more = "..." if len(data) > 20 else ""
    return f"{len(data)} byte(s) {bytes(data[:20])!r}{more}"
