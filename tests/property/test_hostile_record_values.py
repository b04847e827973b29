"""Decoders of the console get any bytes, and show a text or a reason, in bounded steps and memory.

The inputs come from seeds: random bytes, valid values that are cut, changed, repeated or nested,
headers that promise more than follows, and long lists of values that take no bytes. The number of
values has one limit for all decoders.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cbor2
import msgspec
import pytest

from barnabas.console.messages.decoded import Decoded
from barnabas.console.messages.formats import DECODERS, guess
from barnabas.console.messages.protobuf_files import ProtobufFormat
from barnabas.console.messages.schema_decoding import SchemaDecoder
from barnabas.runtime.clock import SystemClock
from barnabas.serializers import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaRegistry,
)
from barnabas.serializers.schema import values_limit
from unit.serializers.avro_bytes import encode_long
from unit.serializers.registry_server import RegistryServer

SHOWN_BYTES = 2000
# Bytes that are decoded by other formats than JSON and text at most.
DECODED_BYTES = 64 * 1024
MEMORY_BYTES = 64 * 1024 * 1024
# Calls of functions: so many in any case, and so many for each byte.
CALLS, CALLS_PER_BYTE = 50_000, 200
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "weights", "type": {"type": "map", "values": ["null", "double"]}},
        {"name": "children", "type": {"type": "array", "items": "Node"}},
    ],
}
# Values that take no bytes, in lists, in lists of lists and in maps; and values of one byte.
NOTHING = {
    "type": "record",
    "name": "Nothing",
    "fields": [{"name": "a", "type": "null"}, {"name": "b", "type": "null"}],
}
LISTS = {
    "type": "record",
    "name": "Lists",
    "fields": [
        {"name": "nulls", "type": {"type": "array", "items": "null"}},
        {"name": "records", "type": {"type": "array", "items": NOTHING}},
        {"name": "lists", "type": {"type": "array", "items": {
            "type": "array", "items": "Nothing"}}},
        {"name": "maps", "type": {"type": "map", "values": {"type": "map", "values": "Nothing"}}},
        {"name": "enums", "type": {"type": "array", "items": {
            "type": "enum", "name": "Letter", "symbols": ["A", "B"]}}},
    ],
}  # fmt: skip
EMPTY = {"a": None, "b": None}
FULL_LISTS: dict[str, Any] = {
    "nulls": [None, None],
    "records": [EMPTY],
    "lists": [[EMPTY, EMPTY], []],
    "maps": {"k": {"l": EMPTY}},
    "enums": ["B", "A"],
}
# Two bytes make an empty message, which is shown with all its defaults.
WIDE = (
    'syntax = "proto3"; message Wide { repeated Wide list = 1; '
    + " ".join(f"int32 f{number} = {number};" for number in range(2, 200))
    + "}"
)
PROTO = """
syntax = "proto3";
message Node { string name = 1; map<string, double> weights = 2; repeated Node children = 3; }
"""
TREE: dict[str, Any] = {
    "name": "root",
    "weights": {"a": 1.5},
    "children": [{"name": "leaf", "weights": {}, "children": []}],
}

Decode = Callable[[bytes], Decoded | None]


@pytest.fixture(scope="module")
def decoders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Decode, bytes]]]:
    """Each decoder with a valid value."""
    file: Path = tmp_path_factory.mktemp("proto") / "node.proto"
    file.write_text(PROTO)
    json = msgspec.json.encode(TREE)
    valid = {
        "msgpack": msgspec.msgpack.encode(TREE),
        "cbor": cbor2.dumps(TREE),
        "xml": b'<node a="1"><name>root</name><children>&amp;</children></node>',
    }
    found: dict[str, tuple[Decode, bytes]] = {
        name: (decode, valid.get(name, json)) for name, decode in DECODERS.items()
    }
    found["automatic"] = (guess, json)
    with RegistryServer() as server:
        registry = SchemaRegistry(server.url)
        made = {
            "avro": AvroSerializer(registry, NODE),
            "json schema": JsonSchemaSerializer(registry, {"title": "Node"}),
            "protobuf": ProtobufSerializer(registry, schema=PROTO),
            "avro lists": AvroSerializer(registry, LISTS),
            "protobuf defaults": ProtobufSerializer(registry, schema=WIDE),
        }
        given = {"avro lists": FULL_LISTS, "protobuf defaults": {"list": [{}, {"f2": 1}]}}
        values = {
            name: each.serialize(name, given.get(name, TREE)) or b"" for name, each in made.items()
        }
        schemas = SchemaDecoder(registry, SystemClock())
        asyncio.run(schemas.look_up(values.values()))
        found |= {name: (schemas.decode, value) for name, value in values.items()}
        found["protobuf file"] = (ProtobufFormat(str(file), "Node").decode, values["protobuf"][6:])
        yield found
        schemas.close()


def hostile(rng: random.Random, valid: bytes) -> bytes:
    """Return bytes that a producer could have made from a valid value to harm a decoder."""
    size = rng.choice((1, 10, 1000, DECODED_BYTES))
    head = valid[: rng.randint(0, min(8, len(valid)))]
    match rng.randrange(9):
        case 0:
            return head + rng.randbytes(size)
        case 1:
            return valid[: rng.randint(0, len(valid))]
        case 2:
            data = bytearray(valid)
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            return bytes(data)
        case 3:
            return valid * rng.randint(2, 20)
        case 4:
            # A byte that opens a level in one of the formats, many times.
            opening = (b"[", b'{"a":', b"<a>", b"\x91", b"\x81", b"\xd8\x1c\x81", b"\x1a\x02")
            return head + rng.choice(opening) * size
        case 5:
            # Long counts, as in variable-length integers, MessagePack and CBOR.
            counts = (b"\xff" * 9 + b"\x01", b"\xdd\xff\xff\xff\xff", b"\x9b\x7f" + b"\xff" * 7)
            return head + rng.choice(counts) * rng.randint(1, 100)
        case 6:
            # A list with another number of items, in one of many blocks or in one; with a size.
            at = rng.randrange(len(valid))
            count = rng.choice((10, 1000, 30_000, 200_000, 1 << 40, (1 << 63) - 1))
            block = encode_long(count) if rng.randrange(2) else encode_long(-count) + b"\0"
            return valid[:at] + block * rng.choice((1, 1, 2, 50)) + valid[at + rng.randrange(2) :]
        case 7:
            # Empty messages of Protobuf.
            return valid + b"\x0a\0" * (size // 2)
        case _:
            at = rng.randint(0, len(valid))
            return valid[:at] + rng.randbytes(rng.randint(1, 20)) + valid[at:]


def decoded(decode: Decode, data: bytes) -> tuple[Decoded | None, int]:
    """Return what a decoder makes of bytes, and the number of its calls of functions."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        return decode(data), calls
    finally:
        sys.setprofile(None)


def count_values(content: Any) -> int:
    """Return the number of values at all levels."""
    count, pending = 0, [content]
    while pending:
        each = pending.pop()
        count += 1
        if isinstance(each, dict):
            pending += each.values()
        elif isinstance(each, list):
            pending += each
    return count


BY_SCHEMA = ("avro", "avro lists", "json schema", "protobuf", "protobuf defaults")
NAMES = (*DECODERS, "automatic", *BY_SCHEMA, "protobuf file")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_any_bytes_are_shown_or_named_as_wrong(
    decoders: dict[str, tuple[Decode, bytes]], name: str, seed: int
) -> None:
    decode, valid = decoders[name]
    assert decode(valid) is not None
    rng = random.Random(f"{name} {seed}")
    for _ in range(60):
        data = hostile(rng, valid)
        found, calls = decoded(decode, data)
        assert calls <= CALLS + CALLS_PER_BYTE * len(data), data[:100]
        if found is None:
            # The decoder by schema leaves bytes without the id of a schema, and too many bytes, to
            # the other decoders.
            assert name in BY_SCHEMA
            assert data[:5] != valid[:5] or len(data) > DECODED_BYTES
            continue
        assert count_values(found.content) <= values_limit(len(data)), data[:100]
        shown = found.shown(SHOWN_BYTES)
        assert shown.size == len(data)
        assert shown.text or not data or shown.kind in ("empty", "null", "text", "json")
        assert len(shown.text) <= 4 * SHOWN_BYTES, data[:100]


def test_a_list_of_countless_nulls_is_shown_as_bytes_with_the_reason(
    decoders: dict[str, tuple[Decode, bytes]],
) -> None:
    decode, valid = decoders["avro lists"]
    # The schema id, and the first list: a block of 8.9 million items without a byte.
    found = decode(valid[:5] + encode_long(8_900_000) + valid[5 + 1 :])
    assert found is not None
    assert found.kind == "bytes"
    assert re.fullmatch(
        r"the record makes more than 10\d{4} values, the limit for \d+ bytes", found.note
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_memory_for_any_bytes_is_bounded(
    decoders: dict[str, tuple[Decode, bytes]], name: str
) -> None:
    decode, valid = decoders[name]
    rng = random.Random(f"{name} memory")
    inputs = [hostile(rng, valid) for _ in range(25)]
    tracemalloc.start()
    try:
        for data in inputs:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            found = decode(data)
            if found is not None:
                found.shown(SHOWN_BYTES)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before <= MEMORY_BYTES, data[:100]
    finally:
        tracemalloc.stop()
