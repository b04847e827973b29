"""Protobuf schemas of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from barnabas.registry.schemas.limits import all_references, check_size
from barnabas.registry.schemas.model import (
    Difference,
    InvalidSchemaError,
    ParsedSchema,
    ResolvedReference,
    sorted_references,
)
from barnabas.registry.schemas.proto_compatibility import ProtoSchemaTypes, proto_differences
from barnabas.registry.schemas.proto_print import descriptor_text, proto_text
from barnabas.serializers.errors import SchemaError
from barnabas.serializers.proto_types import ProtoTypes
from barnabas.serializers.schema import Schema, SchemaType

if TYPE_CHECKING:
    from collections.abc import Sequence


class ProtobufSchema(ParsedSchema):
    """A Protobuf schema.

    Args:
        text: The .proto file, or its FileDescriptorProto in base64.
        references: The files that it imports, besides those of Protobuf itself.
        is_new: Without effect.

    Raises:
        InvalidSchemaError: The schema is invalid.
    """

    schema_type = "PROTOBUF"

    def __init__(
        self, text: str, references: Sequence[ResolvedReference] = (), is_new: bool = True
    ) -> None:
        super().__init__(text, references, is_new)
        check_size(text)
        referred = {
            each.reference.name: Schema(each.text, SchemaType.PROTOBUF)
            for each in all_references(self.references)
        }
        try:
            types = ProtoTypes(Schema(text, SchemaType.PROTOBUF), referred)
        except SchemaError as error:
            raise InvalidSchemaError(str(error)) from None
        self._source = types.source
        # The same file with the full names of types.
        self._resolved = FileDescriptorProto()
        types.file.CopyToProto(self._resolved)
        self._resolved.syntax = self._source.syntax
        direct = {each.reference.name: each.reference for each in self.references}
        self._types = ProtoSchemaTypes(self._resolved, types.imported_files(), direct)
        self.canonical = proto_text(self._source)

    def normalized(self) -> ProtobufSchema:
        """Return the schema with the full names of types; what has no order is sorted."""
        text = proto_text(self._resolved, is_normalized=True)
        return ProtobufSchema(text, sorted_references(self.references), self.is_new)

    def formatted(self, name: str) -> str:
        """Return the text; "serialized" is the descriptor in base64."""
        return descriptor_text(self._resolved) if name == "serialized" else self.canonical

    def differences(self, writer: ParsedSchema) -> list[Difference]:
        """Return why a reader with this schema cannot read what the writer wrote."""
        assert isinstance(writer, ProtobufSchema), writer
        return proto_differences(self._types, writer._types)
