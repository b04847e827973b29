"""Subject name strategies: under which name of the registry a serializer registers its schema.

A strategy is a function of the topic, "key" or "value", and the full name of the record type. Names
and results are those of Confluent's strategies: TopicNameStrategy (the default), RecordNameStrategy
and TopicRecordNameStrategy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from barnabas.serializers.errors import SchemaError

__all__ = ["SubjectName", "record_name", "topic_name", "topic_record_name"]

# (topic, "key" or "value", full name of the record type or "") -> subject.
SubjectName: TypeAlias = Callable[[str, str, str], str]


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
