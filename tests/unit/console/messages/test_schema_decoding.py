"""Messages with a schema are shown as JSON; a failing registry leaves them as bytes."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.console.messages.decoded import FULL_BYTES, ShownBytes
from barnabas.console.messages.formats import Decoders
from barnabas.console.messages.masking import NO_MASKS
from barnabas.console.messages.record_view import RecordView
from barnabas.console.messages.schema_decoding import SchemaDecoder
from barnabas.runtime import web
from barnabas.runtime.clock import SystemClock
from barnabas.serializers import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaRegistry,
)
from unit.serializers.registry_server import RegistryServer
from waiting import eventually

SECONDS = 60.0
SCHEMA = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "origin", "type": "string"}, {"name": "delay", "type": "int"}],
}
FLIGHT = {"origin": "JFK", "delay": 42}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(web, "pause", lambda _seconds: None)
    with RegistryServer() as running:
        yield running


def shown(url: str, *values: bytes | None, decoder: SchemaDecoder | None = None) -> list[Any]:
    """Values as a list of messages shows them."""
    made = decoder or SchemaDecoder(SchemaRegistry(url), SystemClock())
    records = [
        ConsumerRecord("t", 0, offset, 0, 0, None, value, ()) for offset, value in enumerate(values)
    ]
    view = RecordView(Decoders(made), NO_MASKS)
    asyncio.run(view.look_up(records))
    return [each.value for each in asyncio.run(view.show_all(records))]


def test_values_of_all_formats_are_json(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    proto = 'syntax = "proto3"; message Flight { string origin = 1; int32 delay = 2; }'
    for serializer in (
        AvroSerializer(registry, SCHEMA),
        JsonSchemaSerializer(registry, {"title": "Flight"}),
        ProtobufSerializer(registry, schema=proto),
    ):
        data = serializer.serialize("flights", FLIGHT)
        assert data is not None
        [found] = shown(server.url, data)
        schema_id = int.from_bytes(data[1:5], "big")
        text = '{"origin": "JFK", "delay": 42}'
        assert found == ShownBytes("json", text, len(data), False, f"schema {schema_id}", True)


def test_other_bytes_are_shown_as_before_and_ask_nothing(server: RegistryServer) -> None:
    found = shown(server.url, None, b"", b"plain", b"\0", b"\0" * (FULL_BYTES + 1))
    assert [(each.kind, each.note) for each in found] == [
        ("null", ""),
        ("empty", ""),
        ("text", ""),
        ("bytes", ""),
        ("bytes", ""),
    ]
    assert server.requests == []


def test_an_unknown_id_is_asked_for_once_and_its_reason_is_shown(server: RegistryServer) -> None:
    decoder = SchemaDecoder(SchemaRegistry(server.url), SystemClock())
    data = struct.pack(">bIq", 0, 77, 5)
    for _ in range(2):
        [found] = shown(server.url, data, decoder=decoder)
        assert found.kind == "bytes"
        assert "no schema with id 77" in found.note
    assert len(server.requests) == 1


def test_lookups_of_one_page_are_bounded(server: RegistryServer) -> None:
    found = shown(server.url, *(struct.pack(">bIq", 0, 100 + n, 5) for n in range(30)))
    assert len(server.requests) == 20
    assert found[-1].note == "the registry was not asked for its schema"


def test_an_unreachable_registry_is_asked_once_per_page() -> None:
    tries: list[str] = []

    def broken(method: str, path: str, headers: Any) -> tuple[int, bytes]:
        tries.append(path)
        return 401, b"{}"

    with RegistryServer(broken) as server:
        found = shown(server.url, *(struct.pack(">bIq", 0, n, 5) for n in range(5)))
    assert len(tries) == 1
    assert all("status 401" in each.note for each in found)


def test_a_registry_that_does_not_answer_is_named_and_not_asked_again_at_once() -> None:
    may_answer = threading.Event()
    tries: list[str] = []

    def silent(_method: str, path: str, _headers: Any) -> tuple[int, bytes]:
        tries.append(path)
        may_answer.wait(SECONDS)
        return 404, b"{}"

    with RegistryServer(silent) as server:
        registry = SchemaRegistry(server.url, timeout_s=SECONDS)
        decoder = SchemaDecoder(registry, TickingClock(), lookup_s=0.01)
        for number in range(5):
            [found] = shown("", struct.pack(">bIq", 0, number, 5), decoder=decoder)
            assert found.kind == "bytes"
            assert found.note == "the registry does not answer within 0.01 s"
        eventually(lambda: tries)
        assert len(tries) == 1
        may_answer.set()
        decoder.close()


def test_damaged_bytes_are_shown_with_the_reason(server: RegistryServer) -> None:
    data = AvroSerializer(SchemaRegistry(server.url), SCHEMA).serialize("flights", FLIGHT)
    assert data is not None
    [found] = shown(server.url, data[:-1])
    assert found.kind == "bytes"
    assert "do not fit the Avro schema" in found.note


class TickingClock(SystemClock):
    """A clock that goes on by a step with each question."""

    def __init__(self) -> None:
        self.now_ms, self.step_ms = 0.0, 0.0

    def monotonic_ms(self) -> float:
        self.now_ms += self.step_ms
        return self.now_ms


def test_a_schema_whose_records_are_slow_is_not_used_for_a_while(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    slow, quick = (
        AvroSerializer(registry, text).serialize("t", "JFK")
        for text in ('"string"', '{"type": "string"}')
    )
    clock = TickingClock()
    decoder = SchemaDecoder(registry, clock)
    assert [each.note for each in shown("", slow, quick, decoder=decoder)] == [
        "schema 1", "schema 2",
    ]  # fmt: skip

    def text(data: bytes | None) -> str:
        return str(shown("", data, decoder=decoder)[0].text)

    clock.step_ms = 1500.0
    assert text(slow) == "JFK"
    clock.step_ms = 0.0
    [found] = shown("", slow, decoder=decoder)
    assert found.kind == "bytes"
    assert found.note == "records of schema 1 take too long to decode: wait ten seconds"
    assert text(quick) == "JFK"
    clock.now_ms += 10_000
    assert text(slow) == "JFK"
