"""Messages without a registry are decoded by a .proto file, or by a set of descriptors."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from barnabas.console.messages.decoded import FULL_BYTES
from barnabas.console.messages.protobuf_files import ProtobufFormat
from barnabas.serializers.errors import SchemaError
from barnabas.serializers.proto_types import ProtoTypes
from barnabas.serializers.schema import Schema, SchemaType

COMMON = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
ORDER = """
syntax = "proto3";
package shop;
import "shop/money.proto";
import "google/protobuf/timestamp.proto";
message Other { string a = 1; }
message Order { string id = 1; Money price = 2; google.protobuf.Timestamp at = 3; }
"""
# id "A7", price of 250 cents.
RECORD = b"\x0a\x02A7\x12\x03\x08\xfa\x01"


@pytest.fixture
def text_file(tmp_path: Path) -> str:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "money.proto").write_text(COMMON)
    path = tmp_path / "order.proto"
    path.write_text(ORDER)
    return str(path)


@pytest.fixture
def descriptors(tmp_path: Path) -> str:
    types = ProtoTypes(
        Schema(ORDER, SchemaType.PROTOBUF),
        {"shop/money.proto": Schema(COMMON, SchemaType.PROTOBUF)},
    )
    files = FileDescriptorSet(file=[*types.imported_files(), types.source])
    files.file.sort(key=lambda each: each.name, reverse=True)
    files.file.sort(key=lambda each: each.name == types.source.name)
    path = tmp_path / "order.desc"
    path.write_bytes(files.SerializeToString())
    return str(path)


@pytest.mark.parametrize("source", ["text_file", "descriptors"])
@pytest.mark.parametrize("name", ["Order", "shop.Order"])
def test_values_are_json(source: str, name: str, request: pytest.FixtureRequest) -> None:
    found = ProtobufFormat(request.getfixturevalue(source), name).decode(RECORD)
    assert found.content == {"id": "A7", "price": {"cents": "250"}}
    assert found.note == "Protobuf shop.Order"
    assert found.raw == RECORD


def test_other_bytes_keep_their_form_and_say_why(text_file: str) -> None:
    decode = ProtobufFormat(text_file, "Order").decode
    assert "are no shop.Order" in decode(b"\x0a\xff").note
    assert "KiB" in decode(b"\0" * (FULL_BYTES + 1)).note


def test_files_without_the_message_are_refused(text_file: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="no message Missing; it has shop"):
        ProtobufFormat(text_file, "Missing")
    (tmp_path / "bad.desc").write_bytes(b"\xff\xff")
    with pytest.raises(SchemaError, match="neither"):
        ProtobufFormat(str(tmp_path / "bad.desc"), "Order")
    (tmp_path / "empty.desc").touch()
    with pytest.raises(SchemaError, match="no file with messages"):
        ProtobufFormat(str(tmp_path / "empty.desc"), "Order")
    (tmp_path / "latin.proto").write_bytes(b"\xff")
    with pytest.raises(SchemaError, match="not UTF-8"):
        ProtobufFormat(str(tmp_path / "latin.proto"), "Order")


def test_imports_in_a_circle_are_refused(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.proto").write_text(
            f'syntax = "proto3"; import "{other}.proto"; message {name.upper()} {{}}'
        )
    with pytest.raises(SchemaError, match="again"):
        ProtobufFormat(str(tmp_path / "a.proto"), "A")
