"""A schema as a registry stores it, and the names of the subjects under which it is registered.

A subject name strategy is a function of the topic, "key" or "value", and the full name of the
record type. Names and results are those of Confluent's strategies: TopicNameStrategy (the default),
RecordNameStrategy and TopicRecordNameStrategy.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from barnabas.serializers.errors import SchemaError

__all__ = [
    "RegisteredSchema",
    "Schema",
    "SchemaReference",
    "SchemaType",
    "SubjectName",
    "record_name",
    "schema_text",
    "topic_name",
    "topic_record_name",
]

# (topic, "key" or "value", full name of the record type or "") -> subject.
SubjectName: TypeAlias = Callable[[str, str, str], str]


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


def topic_name(topic: str, part: str, _record: str) -> str:
    """Return TOPIC-key or TOPIC-value: one schema, with its versions, per topic."""
    return f"{topic}-{part}"


def record_name(_topic: str, _part: str, record: str) -> str:
    """Return the name of the record type: the same schema in all topics.

    Raises:
        SchemaError: The schema has no name.
    """
    return _named(record)


def topic_record_name(topic: str, _part: str, record: str) -> str:
    """Return TOPIC-RECORD: several record types in one topic.

    Raises:
        SchemaError: The schema has no name.
    """
    return f"{topic}-{_named(record)}"


def _named(record: str) -> str:
    if not record:
        raise SchemaError(
            "the schema has no name for its subject: give it one (JSON Schema: a title), or use "
            "the strategy topic_name"
        )
    return record
