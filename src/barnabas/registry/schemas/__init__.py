"""Schemas of the registry: Avro, JSON Schema and Protobuf, parsed and compared.

Source: Confluent's Schema Registry, whose interface the registry has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.registry.schemas.levels import LEVELS, check_level, incompatibilities
from barnabas.registry.schemas.model import (
    SCHEMA_TYPES,
    InvalidSchemaError,
    ParsedSchema,
    Reference,
    ResolvedReference,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "LEVELS",
    "SCHEMA_TYPES",
    "InvalidSchemaError",
    "ParsedSchema",
    "Reference",
    "ResolvedReference",
    "check_level",
    "incompatibilities",
    "parse",
]


def parse(
    schema_type: str, text: str, references: Sequence[ResolvedReference] = ()
) -> ParsedSchema:
    """Return a schema.

    Args:
        schema_type: One of `SCHEMA_TYPES`.
        text: Avro and JSON Schema: JSON. Protobuf: the .proto file, or its FileDescriptorProto in
            base64.
        references: The schemas that the text refers to.

    Raises:
        InvalidSchemaError: The schema is invalid or too complex, or its type is unknown.
    """
    raise InvalidSchemaError(f"Invalid schema type {schema_type}: use one of {SCHEMA_TYPES}")
