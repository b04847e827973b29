"""A schema as a registry stores it: text, type, and references to schemas of other subjects."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

__all__ = ["RegisteredSchema", "Schema", "SchemaReference", "SchemaType", "schema_text"]


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
