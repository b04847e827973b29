"""Apply the user's serializers: plain functions, and serializers that depend on the topic.

A serializer with a schema registry (`barnabas.serializers.lookups`) is an object whose `for_topic`
returns a function for one topic. On an event loop, that function must not block: the asyncio
producer calls its `without_blocking`, and runs the lookup that it may ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from barnabas.client.errors import ClientConfigError

__all__ = ["RecordSerializer", "record_serializer"]

# (topic, key or value, whether the call may block) -> bytes.
RecordSerializer: TypeAlias = Callable[[str, Any, bool], "bytes | None"]


def record_serializer(part: Literal["key", "value"], given: Any) -> RecordSerializer | None:
    """Return a serializer of a user in the form that the producer calls.

    Args:
        part: What it serializes.
        given: A function of one value, or an object with `for_topic`. None, and the name of a Java
            class in a properties file, mean no serializer.

    Raises:
        ClientConfigError: It is neither.
    """
    if given is None or isinstance(given, str):
        return None
    for_topic = getattr(given, "for_topic", None)
    if for_topic is not None:

        def serialize(topic: str, value: Any, may_block: bool) -> bytes | None:
            bound = for_topic(topic, part)
            data: bytes | None = bound(value) if may_block else bound.without_blocking(value)
            return data

        return serialize
    if not callable(given):
        raise ClientConfigError(f"{part}_serializer={given!r} is not callable")

    def call(_topic: str, value: Any, _may_block: bool) -> bytes | None:
        data: bytes | None = given(value)
        return data

    return call
