"""Values to bytes and back: what `key_serializer`, `value_deserializer` and their twins take.

Plain formats are functions of one value (`basic`). Serializers with a schema registry are objects;
they are imported at their first use, because their libraries are in the extra `registry`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from barnabas.serializers.basic import (
    Deserializer as Deserializer,
    Serializer as Serializer,
    deserialize_boolean as deserialize_boolean,
    deserialize_bytes as deserialize_bytes,
    deserialize_double as deserialize_double,
    deserialize_float as deserialize_float,
    deserialize_integer as deserialize_integer,
    deserialize_json as deserialize_json,
    deserialize_json_as as deserialize_json_as,
    deserialize_long as deserialize_long,
    deserialize_short as deserialize_short,
    deserialize_string as deserialize_string,
    deserialize_uuid as deserialize_uuid,
    deserialize_void as deserialize_void,
    serialize_boolean as serialize_boolean,
    serialize_bytes as serialize_bytes,
    serialize_double as serialize_double,
    serialize_float as serialize_float,
    serialize_integer as serialize_integer,
    serialize_json as serialize_json,
    serialize_long as serialize_long,
    serialize_short as serialize_short,
    serialize_string as serialize_string,
    serialize_uuid as serialize_uuid,
    serialize_void as serialize_void,
)

if TYPE_CHECKING:
    from barnabas.serializers.avro import (
        AvroDeserializer as AvroDeserializer,
        AvroSerializer as AvroSerializer,
    )
    from barnabas.serializers.avro_arrow import avro_to_arrow as avro_to_arrow
    from barnabas.serializers.errors import (
        RegistryError as RegistryError,
        SchemaError as SchemaError,
        SchemaMismatchError as SchemaMismatchError,
        UnknownSchemaError as UnknownSchemaError,
        WireFormatError as WireFormatError,
    )
    from barnabas.serializers.json_schema import (
        JsonSchemaDeserializer as JsonSchemaDeserializer,
        JsonSchemaSerializer as JsonSchemaSerializer,
    )
    from barnabas.serializers.protobuf import (
        ProtobufDeserializer as ProtobufDeserializer,
        ProtobufSerializer as ProtobufSerializer,
    )
    from barnabas.serializers.registry import SchemaRegistry as SchemaRegistry
    from barnabas.serializers.schema import (
        RegisteredSchema as RegisteredSchema,
        Schema as Schema,
        SchemaReference as SchemaReference,
        SchemaType as SchemaType,
        record_name as record_name,
        topic_name as topic_name,
        topic_record_name as topic_record_name,
    )

_DEFINED_IN = {
    "barnabas.serializers.avro": (
        "AvroDeserializer",
        "AvroSerializer",
    ),
    "barnabas.serializers.avro_arrow": ("avro_to_arrow",),
    "barnabas.serializers.errors": (
        "RegistryError",
        "SchemaError",
        "SchemaMismatchError",
        "UnknownSchemaError",
        "WireFormatError",
    ),
    "barnabas.serializers.json_schema": (
        "JsonSchemaDeserializer",
        "JsonSchemaSerializer",
    ),
    "barnabas.serializers.protobuf": (
        "ProtobufDeserializer",
        "ProtobufSerializer",
    ),
    "barnabas.serializers.registry": ("SchemaRegistry",),
    "barnabas.serializers.schema": (
        "RegisteredSchema",
        "Schema",
        "SchemaReference",
        "SchemaType",
        "record_name",
        "topic_name",
        "topic_record_name",
    ),
}
_MODULE_OF = {name: module for module, names in _DEFINED_IN.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import the module that defines a serializer of a registry, and return it."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    """Return the public names, whether or not their modules are loaded yet."""
    return sorted({*_MODULE_OF, *globals()})
