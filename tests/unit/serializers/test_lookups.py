"""Lookups do not block an event loop, and a topic's schema is looked up once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from barnabas.client.errors import ClientConfigError
from barnabas.client.producer.user_objects import record_serializer
from barnabas.serializers import AvroDeserializer, AvroSerializer, SchemaRegistry
from barnabas.serializers.lookups import SchemaLookup
from unit.serializers.registry_server import RegistryServer


def test_without_blocking_a_lookup_is_asked_for_and_then_not_again(
    registry: SchemaRegistry,
) -> None:
    bound = AvroSerializer(registry, '"string"').for_topic("t", "key")
    with pytest.raises(SchemaLookup) as wanted:
        bound.without_blocking("JFK")
    wanted.value.run()
    data = bound.without_blocking("JFK")
    deserializer = AvroDeserializer(registry)
    with pytest.raises(SchemaLookup) as wanted:
        deserializer.without_blocking(data)
    wanted.value.run()
    assert deserializer.without_blocking(data) == "JFK"
    assert bound.without_blocking(None) is None
    assert bound.subject == "t-key"


def test_the_topic_of_a_record_selects_the_subject(registry: SchemaRegistry) -> None:
    serializer = AvroSerializer(registry, '"string"')
    serialize = record_serializer("value", serializer)
    assert serialize is not None
    assert serialize("first", "JFK", True) == serialize("second", "JFK", True)
    assert {"first-value", "second-value"} <= set(registry.subjects())
    assert serializer.for_topic("first", "value") is serializer.for_topic("first", "value")


def test_what_is_no_serializer_is_refused() -> None:
    with pytest.raises(ClientConfigError, match="value_serializer=3 is not callable"):
        record_serializer("value", 3)
    assert record_serializer("value", "org.example.Serializer") is None


def test_an_event_loop_runs_while_the_registry_is_asked() -> None:
    loop_ran = threading.Event()

    def wait(method: str, path: str, headers: Any) -> tuple[int, bytes] | None:
        assert loop_ran.wait(30)
        return None

    async def look_up(lookup: SchemaLookup) -> None:
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(None, lookup.run)
        await asyncio.sleep(0)
        loop_ran.set()
        await work

    with RegistryServer(wait) as server:
        bound = AvroSerializer(SchemaRegistry(server.url), '"int"').for_topic("t", "value")
        with pytest.raises(SchemaLookup) as wanted:
            bound.without_blocking(1)
        asyncio.run(look_up(wanted.value))
        assert bound.without_blocking(1) == b"\0\0\0\0\1\x02"
