"""The fixture `schema_registry` as users run it, with pytest in separate processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.testing.test_pytest_plugin import run, temporary

pytest_plugins = ["pytester"]
__all__ = ["run", "temporary"]

SETTINGS = """
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from barnabas.serializers import SchemaRegistry

def test_settings_of_clients(schema_registry, kafka_topic):
    subject = f"{kafka_topic}-value"
    theirs = SchemaRegistryClient(schema_registry.confluent)
    number = theirs.register_schema(subject, Schema('"string"', "AVRO"))
    assert SchemaRegistry(**schema_registry.barnabas).latest(subject).schema_id == number
    assert schema_registry.java == {"schema.registry.url": schema_registry.url}
    assert schema_registry.spark == {"registry": schema_registry.url}
"""
FAULTS = """
import pytest
from barnabas.serializers import Schema, SchemaRegistry

def register(registry):
    return SchemaRegistry(registry.url).register("kept", Schema('"string"'))

@pytest.mark.parametrize("fault", ["kill", "pause", "stop"])
def test_fault(schema_registry, fault):
    register(schema_registry)
    getattr(schema_registry, fault)()

def test_after(schema_registry):
    assert SchemaRegistry(schema_registry.url).versions("kept") == [1]
"""


def test_clients_use_the_settings_of_the_registry(run, temporary: Path) -> None:
    run(SETTINGS).assert_outcomes(passed=1)
    assert not list(temporary.iterdir())


def test_a_killed_or_paused_registry_is_restored_for_the_next_test(run) -> None:
    run(FAULTS).assert_outcomes(passed=4)


def test_the_registry_lives_as_long_as_the_broker(run, pytester: pytest.Pytester) -> None:
    source = """
import pytest
urls = set()

@pytest.mark.parametrize("number", range(2))
def test_url(schema_registry, number):
    urls.add(schema_registry.url)

def test_count():
    assert len(urls) == {wanted}
"""
    pytester.makeini("[pytest]\nkafka_broker_scope = function\n")
    run(source.format(wanted=2)).assert_outcomes(passed=3)
    pytester.makeini("[pytest]\nschema_registry_scope = day\n")
    result = run(source.format(wanted=2))
    result.stdout.fnmatch_lines(["*schema_registry_scope is 'day', but must be one of session, *"])
