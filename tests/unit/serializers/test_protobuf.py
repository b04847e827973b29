"""Protobuf: .proto texts beside the descriptors of the compiler, round trips, hostile input."""

from __future__ import annotations

import base64
import contextlib
import importlib
from pathlib import Path
from typing import Any

import google.rpc
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given, strategies as st

from barnabas.serializers import (
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryError,
    SchemaError,
    SchemaMismatchError,
    SchemaRegistry,
    WireFormatError,
)
from barnabas.serializers.any_schema import AnyDeserializer
from barnabas.serializers.proto_text import UnsupportedProtoError, parse_proto
from barnabas.serializers.proto_types import ProtoTypes
from barnabas.serializers.protobuf import message_as_json
from barnabas.serializers.schema import Schema, SchemaType, encode_header
from unit.serializers.registry_server import RegistryServer

# Files of a package, whose modules the compiler made of the texts beside them.
ROOT = Path(google.rpc.__path__[0]).parent
TEXTS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.proto"))
FLIGHT = """
syntax = "proto3";
package flights; // the schema of a test
import "google/protobuf/timestamp.proto";
option java_package = "org.example";
/* A flight. */
message Flight {
  reserved 9, 15 to 20;
  string origin = 1 [deprecated = true, (my.option) = { a: [1, 2] b: "}" }];
  optional int32 delay = 2;
  oneof cause { string weather = 3; Kind kind = 4; }
  map<string, Leg> legs = 5;
  repeated int64 miles = 6 [packed = false];
  google.protobuf.Timestamp departed = 7;
  enum Kind { option allow_alias = true; UNKNOWN = 0; FOG = 1; MIST = 1; }
  message Leg { string to = 1; }
  ;
}
service Board { rpc Get (Flight) returns (stream Flight) { option deprecated = true; } }
"""


def without_options(file: FileDescriptorProto) -> FileDescriptorProto:
    """A descriptor without its name, and without options that do not decide about messages."""
    for name in ("name", "source_code_info"):
        file.ClearField(name)  # type: ignore[arg-type]
    strip_options(file)
    return file


def strip_options(message: Any) -> None:
    for field, value in message.ListFields():
        if field.name == "options":
            names = [each.name for each, _ in value.ListFields()]
            kept = {each: getattr(value, each) for each in ("map_entry", "packed") if each in names}
            message.ClearField("options")
            for each, setting in kept.items():
                setattr(message.options, each, setting)
        elif field.message_type is not None:
            for each in value if field.is_repeated else (value,):
                strip_options(each)


def add_imports(pool: Any, file: Any) -> None:
    for each in file.dependencies:
        add_imports(pool, each)
        pool.AddSerializedFile(each.serialized_pb)


@pytest.mark.parametrize("path", TEXTS)
def test_a_text_has_the_descriptor_that_the_compiler_made(path: str) -> None:
    module = importlib.import_module(
        "google." + path.removesuffix(".proto").replace("/", ".") + "_pb2"
    )
    expected = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    pool = descriptor_pool.DescriptorPool()
    add_imports(pool, module.DESCRIPTOR)
    pool.Add(parse_proto((ROOT / path).read_text(), "parsed.proto"))
    found = FileDescriptorProto()
    pool.FindFileByName("parsed.proto").CopyToProto(found)
    assert without_options(found) == without_options(expected)


def test_some_texts_are_compared() -> None:
    assert len(TEXTS) > 50


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "origin": st.text(min_size=1, max_size=5),
            "delay": st.integers(-(2**31), 2**31 - 1),
            "weather": st.text(max_size=5),
            "legs": st.dictionaries(st.text(max_size=3), st.just({"to": "JFK"}), min_size=1),
        },
    )
)
def test_dictionaries_come_back_as_messages(
    registry: SchemaRegistry, value: dict[str, Any]
) -> None:
    data = ProtobufSerializer(registry, schema=FLIGHT).serialize("flights", value)
    message = ProtobufDeserializer(registry)(data)
    assert message.origin == value.get("origin", "")
    assert message.HasField("delay") == ("delay" in value)
    assert message.WhichOneof("cause") == ("weather" if "weather" in value else None)
    legs = dict.fromkeys(value.get("legs", {}), "JFK")
    assert {name: leg.to for name, leg in message.legs.items()} == legs


def test_a_message_of_another_pool_is_accepted_by_its_name(registry: SchemaRegistry) -> None:
    serializer = ProtobufSerializer(registry, schema=FLIGHT)
    data = serializer.serialize("flights", {"origin": "JFK"})
    message = ProtobufDeserializer(registry)(data)
    assert serializer.serialize("flights", message) == data
    with pytest.raises(SchemaMismatchError, match=r"neither a .* nor a dictionary"):
        serializer.serialize("flights", message.departed)


def test_a_dictionary_that_does_not_fit_names_the_field(registry: SchemaRegistry) -> None:
    with pytest.raises(SchemaMismatchError, match='no field named "orign"'):
        ProtobufSerializer(registry, schema=FLIGHT).serialize("flights", {"orign": "JFK"})
    with pytest.raises(SchemaMismatchError, match="delay"):
        ProtobufSerializer(registry, schema=FLIGHT).serialize("flights", {"delay": "late"})


@given(data=st.binary(max_size=40))
def test_any_bytes_are_a_message_or_an_error(
    server: RegistryServer, registry: SchemaRegistry, data: bytes
) -> None:
    header = encode_header(server.add(FLIGHT, "PROTOBUF"))
    with contextlib.suppress(WireFormatError, SchemaError):
        ProtobufDeserializer(registry)(header + data)


def nested(depth: int) -> str:
    return "message M { " * depth + "}" * depth


@pytest.mark.parametrize(
    "text",
    [
        "",
        "message",
        "message M { string a = 0; }",
        "message M { string a = 1; string b = 1; }",
        "message M { Missing a = 1; }",
        "message M { string a = 99999999999999999999; }",
        'import "other.proto"; message M {}',
        'import "google/protobuf/../x.proto"; message M {}',
        "message M { /* without an end",
        'syntax = "proto9";',
        nested(40),
        "message M { " + "oneof o { " * 1000,
        base64.b64encode(b"\x0a\x01x").decode() + "!",
    ],
)
def test_a_wrong_or_hostile_text_is_refused(registry: SchemaRegistry, text: str) -> None:
    with pytest.raises(SchemaError):
        ProtobufSerializer(registry, schema=text)


@pytest.mark.parametrize(
    "text", ['edition = "2023"; message M {}', "message M { optional group G = 1 {} }"]
)
def test_parts_of_the_language_that_are_not_read_are_named(text: str) -> None:
    with pytest.raises(UnsupportedProtoError, match="not supported"):
        parse_proto(text, "x.proto")


def test_a_path_to_no_message_is_refused(server: RegistryServer, registry: SchemaRegistry) -> None:
    header = encode_header(server.add(FLIGHT, "PROTOBUF"))
    with pytest.raises(SchemaError, match=r"no message at the path \[5\]"):
        ProtobufDeserializer(registry)(header + b"\x02\x0a")


BOMB = """
syntax = "proto3";
import "google/protobuf/any.proto";
message Outer {{
  repeated Wide list = 1;
  map<int32, Wide> map = 2;
  repeated google.protobuf.Any any = 3;
}}
message Wide {{ {fields} }}
"""


@pytest.mark.parametrize("field", ["list", "map", "any"])
def test_a_small_record_with_countless_defaults_is_not_shown_as_json(
    server: RegistryServer, registry: SchemaRegistry, field: str
) -> None:
    fields = " ".join(f"int32 f{number} = {number};" for number in range(1, 2001))
    types = ProtoTypes(Schema(BOMB.format(fields=fields), SchemaType.PROTOBUF), {})
    message: Any = types.named("Outer")()
    for number in range(100):
        if field == "any":
            message.any.add(type_url="type.googleapis.com/Wide")
        elif field == "map":
            message.map[number].SetInParent()
        else:
            message.list.add()
        if number == 10:
            assert "f2000" in str(message_as_json(message))
    with pytest.raises(WireFormatError, match=r"more than 1\d{5} fields with their defaults"):
        message_as_json(message)
    header = encode_header(server.add(BOMB.format(fields=fields), "PROTOBUF"))
    read = AnyDeserializer(registry)
    with pytest.raises(WireFormatError, match=r"more than 1\d{5} fields"):
        read(header + b"\0" + message.SerializeToString())


def test_a_record_with_countless_messages_is_refused_before_it_fills_the_memory(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    """The bytes are damaged behind these messages, which the decoder would make first."""
    fields = " ".join(f"int64 f{number} = {number};" for number in range(1, 2001))
    schema = (
        'syntax = "proto3"; message Outer { repeated Wide list = 1; Outer self = 2; }'
        f" message Wide {{ {fields} }}"
    )
    header = encode_header(server.add(schema, "PROTOBUF"))
    read = AnyDeserializer(registry)
    assert len(read(header + b"\0\x12\x04" + b"\x0a\0" * 2)["self"]["list"]) == 2
    with pytest.raises(WireFormatError, match=r"more than 1\d{5} fields"):
        read(header + b"\0" + b"\x0a\0" * 60 + b"\xff")


def test_a_record_that_is_nested_too_deep_is_refused(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    header = encode_header(server.add('syntax = "proto3"; message R { R r = 1; }', "PROTOBUF"))
    data = b""
    for _ in range(60):
        data = b"\x0a" + bytes([len(data)]) + data
    assert ProtobufDeserializer(registry)(header + b"\0" + data) is not None
    # A group is nested by one byte.
    with pytest.raises(WireFormatError, match="the bytes are no R"):
        ProtobufDeserializer(registry)(header + b"\0" + b"\x0b" * 1_000_000)


DELAY = """
syntax = "proto3";
package flights;
message Delay {
  message Cause { string code = 1; }
  Cause cause = 1;
  int32 minutes = 2;
  string note = 3;
}
"""


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (
            "int32 minutes",
            "string minutes",
            "field flights.Delay.minutes: number 2 was int32 and is now string",
        ),
        (
            "string code",
            "repeated string code",
            "field flights.Delay.Cause.code: number 1 was string and is now repeated string",
        ),
        (
            "note = 3",
            "note = 4",
            "field flights.Delay.note: its number was 3 and is now 4",
        ),
        (
            "Cause cause = 1;",
            "Other cause = 1; message Other {}",
            "number 1 was flights.Delay.Cause and is now flights.Delay.Other",
        ),
        ("string note = 3;", "", ""),
        ("int32 minutes", "int32 late", ""),
    ],
    ids=["type", "label", "number", "message", "removed", "renamed"],
)
def test_the_error_of_an_incompatible_schema_names_the_field(
    old: str, new: str, change: str
) -> None:
    def refuse(method: str, path: str, _headers: Any) -> tuple[int, bytes] | None:
        if method == "POST" and path == "/subjects/new-value/versions" and server.subjects:
            return 409, b'{"error_code": 409, "message": "incompatible"}'
        return None

    with RegistryServer(refuse) as server:
        registry = SchemaRegistry(server.url)
        server.subjects["new-value"] = [server.add(DELAY, "PROTOBUF")]
        newer = ProtobufSerializer(registry, schema=DELAY.replace(old, new))
        with pytest.raises(RegistryError, match="incompatible") as raised:
            newer.serialize("new", {})
    assert raised.value.status == 409
    assert str(raised.value).endswith(change or "level of the subject")
