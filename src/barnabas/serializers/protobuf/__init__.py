"""Protobuf: serializers, and the .proto texts of a registry."""
