"""Protobuf messages without a registry: the type comes from a file that the operator names.

A file is .proto text, whose imports are files below its directory, or a set of descriptors as
`protoc --descriptor_set_out --include_imports` writes it.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError

from barnabas.console.messages.decoded import FULL_BYTES, Decoded, decode_plain, decoded_value
from barnabas.runtime.disk import RealDisk
from barnabas.serializers.errors import SchemaError
from barnabas.serializers.proto_text import parse_proto
from barnabas.serializers.proto_types import ProtoTypes
from barnabas.serializers.protobuf import json_decoder
from barnabas.serializers.schema import Schema, SchemaType

if TYPE_CHECKING:
    from google.protobuf.message import Message

_FILES_MAX = 1000
_REASON_CHARACTERS = 200


class ProtobufFormat:
    """Decodes messages of one type.

    Args:
        path: The file.
        name: The message, with or without the package.

    Raises:
        SchemaError: The file is invalid, or has no such message.
        OSError: A file cannot be read.
    """

    def __init__(self, path: str, name: str) -> None:
        self._given = (path, name)
        is_text = path.endswith(".proto")
        kind = _from_text(path, name) if is_text else _from_descriptors(path, name)
        self._decode = json_decoder(kind)
        self._note = f"Protobuf {kind.DESCRIPTOR.full_name}"

    def __reduce__(self) -> tuple[type[ProtobufFormat], tuple[str, str]]:
        """Return how another process makes the format: it reads the file again."""
        return ProtobufFormat, self._given

    def decode(self, data: bytes) -> Decoded:
        """Return a message as JSON, or the bytes with the reason if they are none."""
        if len(data) > FULL_BYTES:
            return decode_plain(data).noted(f"above {FULL_BYTES // 1024} KiB: not decoded")
        try:
            return decoded_value(self._decode(data), data, self._note)
        except (SchemaError, TypeError, ValueError, RecursionError) as error:
            return decode_plain(data).noted(str(error)[:_REASON_CHARACTERS])


def _from_text(path: str, name: str) -> type[Message]:
    """Return the class of a message in .proto text."""
    disk, folder = RealDisk(), path[: max(path.rfind("/"), path.rfind("\\")) + 1]
    references: dict[str, Schema] = {}

    def read(file: str) -> Schema:
        try:
            return Schema(disk.read(file).decode(), SchemaType.PROTOBUF)
        except UnicodeDecodeError:
            raise SchemaError(
                f"{file} is not UTF-8: a .proto file is text; give a set of descriptors a name "
                "that does not end with .proto"
            ) from None

    def add_imports(schema: Schema, file: str, outer: tuple[str, ...]) -> None:
        for each in parse_proto(schema.text, file).dependency:
            inner = folder + each
            if each in references or not disk.exists(inner):
                continue
            if each in outer or len(references) >= _FILES_MAX:
                raise SchemaError(f"{file} imports {each}, which imports it again")
            found = read(inner)
            add_imports(found, each, (*outer, each))
            references[each] = found

    main = read(path)
    add_imports(main, path, ())
    return ProtoTypes(main, references).named(name)


def _from_descriptors(path: str, name: str) -> type[Message]:
    """Return the class of a message in a set of descriptors."""
    try:
        files = FileDescriptorSet.FromString(RealDisk().read(path)).file
    except DecodeError:
        raise SchemaError(f"{path} is neither .proto text nor a set of descriptors") from None
    schemas: dict[str, Schema] = {}
    error = SchemaError(f"{path} has no file with messages")
    for each in files:
        text = base64.b64encode(each.SerializeToString()).decode()
        schema = Schema(text, SchemaType.PROTOBUF)
        try:
            return ProtoTypes(schema, schemas).named(name)
        except SchemaError as found:
            error = found
        # Files stand behind those that they import.
        schemas[each.name] = schema
    raise error
