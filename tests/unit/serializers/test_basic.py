"""Serializers write the same bytes as Kafka's of the same names, and read them back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from barnabas import serializers
from barnabas.client.errors import RecordDeserializationError, SerializationError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

UUID_TEXT = "123e4567-e89b-42d3-a456-426614174000"

# Name, value, bytes as Kafka's Java serializer of that name writes them.
PAIRS: list[tuple[str, Any, bytes]] = [
    ("bytes", b"\x00\xff", b"\x00\xff"),
    ("string", "grüße", b"gr\xc3\xbc\xc3\x9fe"),
    ("short", -2, b"\xff\xfe"),
    ("integer", 1 << 30, b"\x40\x00\x00\x00"),
    ("long", -1, b"\xff" * 8),
    ("float", 1.5, b"\x3f\xc0\x00\x00"),
    ("double", -0.1, b"\xbf\xb9\x99\x99\x99\x99\x99\x9a"),
    ("boolean", True, b"\x01"),
    ("boolean", False, b"\x00"),
    ("uuid", UUID(UUID_TEXT), UUID_TEXT.encode()),
    ("json", {"delay": 42, "of": ["JFK", None]}, b'{"delay":42,"of":["JFK",null]}'),
]
# Name, what its deserializer refuses, a word of the message.
REFUSED = [
    ("string", b"\xff", "utf-8"),
    ("short", b"1", "2 bytes"),
    ("integer", b"12345", "4 bytes"),
    ("long", b"", "8 bytes"),
    ("float", b"12345678", "4 bytes"),
    ("double", b"1234", "8 bytes"),
    ("boolean", b"\x02", "0 or 1"),
    ("boolean", b"", "0 or 1"),
    ("uuid", b"123", "no UUID"),
    ("void", b"", "null"),
    ("json", b"{", "truncated"),
]
WRONG = [
    ("bytes", "text"),
    ("string", b"bytes"),
    ("short", 32768),
    ("integer", 1 << 31),
    ("long", 1 << 63),
    ("long", 1.5),
    ("float", 1e39),
    ("double", 10**400),
    ("boolean", 1),
    ("uuid", UUID_TEXT),
    ("void", 0),
    ("json", object()),
]


def pair(name: str) -> tuple[Callable[[Any], bytes | None], Callable[[bytes | None], Any]]:
    return getattr(serializers, f"serialize_{name}"), getattr(serializers, f"deserialize_{name}")


@pytest.mark.parametrize(("name", "value", "data"), PAIRS)
def test_a_value_is_serialized_as_in_kafka_and_read_back(
    name: str, value: Any, data: bytes
) -> None:
    serialize, deserialize = pair(name)
    assert serialize(value) == data
    assert deserialize(data) == value


@pytest.mark.parametrize("name", sorted({name for name, *_ in PAIRS} | {"void"}))
def test_null_is_none_in_both_directions(name: str) -> None:
    serialize, deserialize = pair(name)
    assert serialize(None) is None
    assert deserialize(None) is None


@pytest.mark.parametrize(("name", "data", "word"), REFUSED)
def test_malformed_bytes_are_refused_with_a_reason(name: str, data: bytes, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        pair(name)[1](data)


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_value_of_another_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        pair(name)[0](value)


def test_mutable_bytes_are_copied() -> None:
    data = bytearray(b"ab")
    copied = serializers.serialize_bytes(data)
    data[0] = 0
    assert copied == b"ab"
    assert serializers.serialize_bytes(memoryview(b"xy")) == b"xy"


@dataclass
class Flight:
    carrier: str
    delay: int = 0


def test_json_of_a_dataclass_is_read_back_and_validated() -> None:
    deserialize = serializers.deserialize_json_as(Flight)
    assert deserialize(serializers.serialize_json(Flight("UA", 7))) == Flight("UA", 7)
    assert deserialize(None) is None
    with pytest.raises(ValueError, match=r"\$\.delay"):
        deserialize(b'{"carrier":"UA","delay":"late"}')


def test_an_error_names_the_record_and_keeps_the_cause() -> None:
    cause = ValueError("a long is 8 bytes")
    read = RecordDeserializationError(TopicPartition("t", 3), 41, "value", cause)
    assert "t-3" in str(read)
    assert "offset 41" in str(read)
    assert "seek to 42" in str(read)
    assert read.__cause__ is cause
    written = SerializationError("t", "key", cause)
    assert "t: the key" in str(written)
    assert written.__cause__ is cause
