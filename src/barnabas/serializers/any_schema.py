"""A deserializer for records of any schema type: for tools that show records to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.serializers.lookups import SchemaDeserializer
from barnabas.serializers.schema import SchemaType, check_json_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.serializers.schema import Schema


class AnyDeserializer(SchemaDeserializer):
    """Deserialize Avro, JSON Schema and Protobuf by the schema of each record.

    Values are those that JSON can hold, and times, decimals and bytes of Avro.
    """

    def decoder(self, schema_id: int, schema: Schema) -> Callable[[bytes], Any]:
        """Return a function from the bytes of a record to its value.

        The function raises `WireFormatError`, also for a record whose JSON exceeds its limit.
        """
        decode = self._decoder(schema_id, schema)

        def checked(data: bytes) -> Any:
            value = decode(data)
            check_json_size(value, len(data))
            return value

        return checked

    def _decoder(self, schema_id: int, schema: Schema) -> Callable[[bytes], Any]:
        match schema.kind:
            case SchemaType.AVRO:
                from barnabas.serializers.avro import AvroDeserializer

                return AvroDeserializer(self.registry).decoder(schema_id, schema)
            case SchemaType.JSON:
                from barnabas.serializers.json_schema import JsonSchemaDeserializer

                return JsonSchemaDeserializer(self.registry).decoder(schema_id, schema)
            case SchemaType.PROTOBUF:
                from barnabas.serializers.protobuf import ProtobufDeserializer, message_as_json

                protobuf = ProtobufDeserializer(self.registry, for_json=True)
                decode = protobuf.decoder(schema_id, schema)
                return lambda data: message_as_json(decode(data))
