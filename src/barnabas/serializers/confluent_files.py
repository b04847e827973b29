"""The .proto files that Confluent's registry has built in: schemas may import them by these names.

Source: the page "Protobuf Schema Serializer and Deserializer" of the Schema Registry's
documentation, and the serialized fields of records that use them.
"""

from __future__ import annotations

_META = """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_DECIMAL = """
syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""
CONFLUENT_FILES = {"confluent/meta.proto": _META, "confluent/type/decimal.proto": _DECIMAL}
