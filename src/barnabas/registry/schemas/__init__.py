"""Schemas of the registry: Avro, JSON Schema and Protobuf, parsed and compared.

Source: Confluent's Schema Registry, whose interface the registry has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.registry.config import LEVELS
from barnabas.registry.schemas.avro import AvroSchema
from barnabas.registry.schemas.json_schema import JsonSchema
from barnabas.registry.schemas.levels import (
    check_level,
    compared_versions,
    find_conflict,
    incompatibilities,
)
from barnabas.registry.schemas.model import (
    SCHEMA_TYPES,
    InvalidSchemaError,
    ParsedSchema,
    Reference,
    ResolvedReference,
)
from barnabas.registry.schemas.protobuf import ProtobufSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "LEVELS",
    "SCHEMA_TYPES",
    "InvalidSchemaError",
    "ParsedSchema",
    "Reference",
    "ResolvedReference",
    "check_level",
    "compared_versions",
    "find_conflict",
    "incompatibilities",
    "parse",
]


_TYPES: dict[str, Callable[..., ParsedSchema]] = {
    "AVRO": AvroSchema,
    "JSON": JsonSchema,
    "PROTOBUF": ProtobufSchema,
}


def parse(
    schema_type: str,
    text: str,
    references: Sequence[ResolvedReference] = (),
    *,
    is_new: bool = True,
) -> ParsedSchema:
    """Return a schema.

    Args:
        schema_type: One of `SCHEMA_TYPES`.
        text: Avro and JSON Schema: JSON. Protobuf: the .proto file, or its FileDescriptorProto in
            base64.
        references: The schemas that the text refers to.
        is_new: False for a schema that the registry has stored already. Then what only new schemas
            must fulfill is not checked: the defaults of Avro's fields.

    Raises:
        InvalidSchemaError: The schema is invalid or too complex, or its type is unknown.
    """
    kind = _TYPES.get(schema_type)
    if kind is None:
        raise InvalidSchemaError(
            f"the schema type {schema_type!r} is unknown: use one of {SCHEMA_TYPES}"
        )
    try:
        return kind(text, references, is_new)
    except RecursionError:
        raise InvalidSchemaError("the schema is too complex: it is nested too deep") from None
