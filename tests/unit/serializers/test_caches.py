"""A failed lookup of a schema is not repeated for each record, and is repeated after a second."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from barnabas.serializers import (
    AvroDeserializer,
    JsonSchemaDeserializer,
    ProtobufDeserializer,
    SchemaRegistry,
    lookups,
)
from barnabas.serializers.any_schema import AnyDeserializer
from barnabas.serializers.caches import RecentFailures
from barnabas.serializers.errors import (
    RegistryError,
    SchemaError,
    SchemaMismatchError,
    UnknownSchemaError,
)
from barnabas.serializers.lookups import SchemaDeserializer, SchemaLookup
from barnabas.sim.clock import SimClock, SimScheduler
from unit.serializers.registry_server import RegistryServer
from waiting import eventually

Make = Callable[[SchemaRegistry], SchemaDeserializer]
MAKERS: list[Make] = [
    AvroDeserializer,
    JsonSchemaDeserializer,
    ProtobufDeserializer,
    AnyDeserializer,
]


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time passes for deserializers, however slow the machine is."""
    monkeypatch.setattr(lookups, "SystemClock", lambda: SimClock(SimScheduler()))


def record(schema_id: int) -> bytes:
    """A record whose schema has this id."""
    return b"\0" + schema_id.to_bytes(4, "big") + b"\0"


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize("make", MAKERS)
def test_records_with_an_unknown_schema_are_one_request(make: Make) -> None:
    with RegistryServer() as server:
        deserialize = make(SchemaRegistry(server.url))
        errors = []
        for _ in range(50):
            with pytest.raises(UnknownSchemaError, match="no schema with id 7") as raised:
                deserialize(record(7))
            errors.append(raised.value)
        assert server.requests == ["GET /schemas/ids/7"]
        assert {each.schema_id for each in errors} == {7}


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_an_invalid_schema_is_parsed_once(
    make: Make, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RegistryServer() as server:
        number = server.add("{", kind)
        deserialize = make(SchemaRegistry(server.url))
        parsed: list[int] = []
        decoder = deserialize.decoder
        monkeypatch.setattr(
            deserialize, "decoder", lambda *args: (parsed.append(1), decoder(*args))[1]
        )
        for _ in range(50):
            with pytest.raises(SchemaError):
                deserialize(record(number))
        assert len(parsed) == 1


@pytest.mark.usefixtures("stopped_clock")
def test_without_blocking_a_failed_lookup_is_not_asked_for_again() -> None:
    with RegistryServer() as server:
        deserialize = AvroDeserializer(SchemaRegistry(server.url))
        with pytest.raises(SchemaLookup) as wanted:
            deserialize.without_blocking(record(7))
        with pytest.raises(UnknownSchemaError):
            wanted.value.run()
        with pytest.raises(UnknownSchemaError):
            deserialize.without_blocking(record(7))


def test_a_schema_that_is_registered_later_is_found() -> None:
    with RegistryServer() as server:
        deserialize = AvroDeserializer(SchemaRegistry(server.url))
        with pytest.raises(UnknownSchemaError):
            deserialize(record(1))
        server.add('"string"')

        def value() -> object:
            try:
                return deserialize(record(1))
            except UnknownSchemaError:
                return None

        eventually(lambda: value() == "", "the schema")


def test_an_error_is_raised_for_a_second() -> None:
    scheduler = SimScheduler()
    failures = RecentFailures(SimClock(scheduler))
    failures.add(7, UnknownSchemaError(7, "http://registry"))
    scheduler.run_for(999)
    with pytest.raises(UnknownSchemaError):
        failures.check(7)
    scheduler.run_for(1)
    failures.check(7)
    failures.check(8)


def test_an_error_that_may_be_over_at_once_is_not_kept() -> None:
    failures = RecentFailures(SimClock(SimScheduler()))
    failures.add(7, RegistryError("not reached"))
    failures.add(8, RegistryError("busy", 503))
    failures.add(9, RegistryError("a reference is missing", 404))
    failures.check(7)
    failures.check(8)
    with pytest.raises(RegistryError, match="a reference") as raised:
        failures.check(9)
    assert raised.value.status == 404


def test_a_kept_error_has_no_frames_of_earlier_records() -> None:
    failures = RecentFailures(SimClock(SimScheduler()))
    failures.add(7, SchemaMismatchError("other type", "origin"))
    depths = set()
    for _ in range(3):
        with pytest.raises(SchemaMismatchError, match="other type") as raised:
            failures.check(7)
        assert raised.value.field == "origin"
        depths.add(len(traceback.extract_tb(raised.tb)))
    assert depths == {2}


def test_the_number_of_errors_is_limited() -> None:
    failures = RecentFailures(SimClock(SimScheduler()))
    for schema_id in range(3000):
        failures.add(schema_id, UnknownSchemaError(schema_id, "http://registry"))
    failures.check(0)
    with pytest.raises(UnknownSchemaError):
        failures.check(2999)
