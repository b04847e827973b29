"""Records of any schema as values that JSON can hold: small records do not become huge JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from barnabas.serializers import AvroSerializer, SchemaRegistry
from barnabas.serializers.any_schema import AnyDeserializer
from barnabas.serializers.errors import WireFormatError
from barnabas.serializers.schema import check_json_size, encode_header, json_limit
from unit.serializers.registry_server import RegistryServer

NAME, OTHER = "n" * 2000, "o" * 2000
ENUM = {"type": "enum", "name": "E", "symbols": [NAME, OTHER]}
NOTHING = {"type": "record", "name": "R", "fields": [{"name": NAME, "type": "null"}]}
PROTO = f"""
syntax = "proto3";
enum E {{ {NAME} = 0; {OTHER} = 1; }}
message Outer {{ repeated Inner list = 1; repeated E symbols = 2; map<int32, E> map = 3; }}
message Inner {{ repeated int32 {NAME} = 1; }}
message Default {{ repeated Symbol list = 1; }}
message Symbol {{ E e = 1; }}
"""


@pytest.mark.parametrize(
    ("schema", "item"),
    [
        pytest.param({"type": "array", "items": NOTHING}, {NAME: None}, id="names"),
        pytest.param({"type": "array", "items": ENUM}, OTHER, id="symbols"),
    ],
)
def test_an_avro_record_with_long_names_for_many_values_is_refused(
    registry: SchemaRegistry, schema: Any, item: Any
) -> None:
    read = AnyDeserializer(registry)
    serializer = AvroSerializer(registry, schema)
    few = serializer.serialize("t", [item] * 300)
    assert few is not None
    assert read(few) == [item] * 300
    many = serializer.serialize("t", [item] * 40_000)
    assert many is not None
    with pytest.raises(WireFormatError, match="the names of its fields, or its enum symbols"):
        read(many)


@pytest.mark.parametrize(
    ("path", "part"),
    [
        pytest.param(b"\0", b"\x0a\0", id="names"),
        pytest.param(b"\0", b"\x10\1", id="symbols"),
        pytest.param(b"\0", b"\x1a\4\x08%c\x10\1", id="symbols of a map"),
        pytest.param(b"\2\4", b"\x0a\0", id="default symbols"),
    ],
)
def test_a_protobuf_record_with_long_names_for_many_values_is_refused(
    server: RegistryServer, registry: SchemaRegistry, path: bytes, part: bytes
) -> None:
    read = AnyDeserializer(registry)
    head = encode_header(server.add(PROTO, "PROTOBUF")) + path

    def record(count: int) -> bytes:
        """Return a record with so many messages or symbols; the keys of a map differ."""
        if b"%c" not in part:
            return head + part * count
        keys = (bytes([number % 128 | 128, number // 128]) for number in range(count))
        return head + b"".join(b"\x1a\5\x08" + key + b"\x10\1" for key in keys)

    assert len(msgspec.json.encode(read(record(300)))) > 300 * 2000
    with pytest.raises(WireFormatError, match="the names of its fields, or its enum symbols"):
        read(record(10_000))


def test_the_size_of_json_counts_what_is_shared_each_time() -> None:
    row = {"a" * 1000: ["b" * 1000, b"c" * 1000]}
    fits = json_limit(0) // 3100
    check_json_size([row] * fits, 0)
    with pytest.raises(WireFormatError, match="more than 2097152 bytes as JSON"):
        check_json_size([row] * (fits + 40), 0)
    # A larger record may have more.
    check_json_size([row] * (fits + 40), 100_000)
