"""`barnabas produce` and `barnabas consume` with formats that have a schema in a registry."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import (
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.serialization import MessageField, SerializationContext

from barnabas import Consumer, Producer
from barnabas.serializers import AvroSerializer, ProtobufDeserializer, SchemaRegistry
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.registry_process import RegistryProcess
from flight_schema import FLIGHT_AVRO

pytestmark = pytest.mark.conformance

_numbers = itertools.count(1)
DEADLINE_S = 60.0


class Shell:
    """Runs `barnabas produce` and `barnabas consume`."""

    def __init__(self, broker: str, registry: str, directory: Path) -> None:
        self.broker = broker
        self.registry = registry
        self.directory = directory

    def run(self, *words: str, text: str = "", status: int = 0) -> str:
        """Run a command, and return its output, or its errors if it must fail."""
        done = subprocess.run(
            [sys.executable, "-m", "barnabas.cli.main", *words, "-b", self.broker],
            input=text,
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE_S,
            check=False,
            cwd=self.directory,
            env={"HOME": str(self.directory), "BARNABAS_REGISTRY": self.registry},
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout if status == 0 else done.stderr

    def read(self, topic: str, *words: str) -> str:
        return self.run("consume", topic, "--from", "beginning", "-e", *words)


@pytest.fixture
def shell(kafka_broker: BrokerProcess, schema_registry: RegistryProcess, tmp_path: Path) -> Shell:
    return Shell(kafka_broker.bootstrap, schema_registry.url, tmp_path)


@pytest.fixture
def registry(schema_registry: RegistryProcess) -> SchemaRegistry:
    return SchemaRegistry(schema_registry.url)


@pytest.fixture
def topic() -> str:
    return f"lines-{next(_numbers)}"


def test_avro_lines_are_read_as_written(shell: Shell, topic: str) -> None:
    (shell.directory / "flight.avsc").write_text(json.dumps(FLIGHT_AVRO))
    line = (
        '{"origin":"JFK","delay":42,"departed":"2026-01-31T12:00:00Z","fare":"120.50",'
        '"stops":["ORD"]}\n'
    )
    shell.run(
        *("produce", topic, "--value-format", "avro", "--value-schema", "flight.avsc"), text=line
    )
    # This line has no schema, so that the latest one is used, and a union in Avro's JSON form.
    typed = line.replace('"delay":42', '"delay":{"int":42}')
    shell.run("produce", topic, "-s", "value=avro", text=typed)
    shell.run("produce", topic, text="no Avro\n")
    shown = shell.read(topic, "--value-format", "avro", "--on-error", "skip")
    assert shown == 2 * line
    copies = shell.read(topic, "--value-format", "avro", "--on-error", "skip", "--json")
    shell.run("produce", f"{topic}-copy", "--from-json", "--value-format", "avro",
              "--value-schema", "flight.avsc", text=copies)  # fmt: skip
    assert shell.read(f"{topic}-copy", "-s", "value=avro") == 2 * line


def test_the_error_of_an_invalid_line_names_the_field(shell: Shell, topic: str) -> None:
    (shell.directory / "flight.avsc").write_text(json.dumps(FLIGHT_AVRO))
    errors = shell.run(
        *("produce", topic, "--value-format", "avro", "--value-schema", "flight.avsc"),
        text='{"origin":"JFK","delay":"late","departed":0,"fare":"1","stops":[]}\n',
        status=1,
    )
    assert "field delay: 'late' is not null or int" in errors


def test_an_unreachable_registry_ends_the_command_despite_on_error_skip(
    shell: Shell, topic: str, registry: SchemaRegistry
) -> None:
    with Producer(shell.broker, value_serializer=AvroSerializer(registry, '"string"')) as producer:
        producer.send(topic, "JFK")
    assert shell.read(topic, "-s", "value=avro") == "JFK\n"
    errors = shell.run(
        *("consume", topic, "--from", "beginning", "-e", "-s", "value=avro", "--on-error", "skip"),
        *("--registry", "http://127.0.0.1:1"),
        status=1,
    )
    assert "the schema registry was not reached" in errors


EVENTS_PROTO = """
syntax = "proto3";
package flights;
message Takeoff { string origin = 1; }
message Landing { string airport = 1; int32 minutes = 2; }
"""
LANDINGS = '{"airport":"JFK","minutes":42}\n', '{"airport":"LGA","minutes":7}\n'


@pytest.mark.parametrize(
    ("strategy", "theirs"),
    [
        ("topic", topic_subject_name_strategy),
        ("record", record_subject_name_strategy),
        ("TopicRecordNameStrategy", topic_record_subject_name_strategy),
    ],
)
def test_options_choose_the_message_and_the_subject(
    shell: Shell, topic: str, registry: SchemaRegistry, strategy: str, theirs: Callable[..., str]
) -> None:
    (shell.directory / "events.proto").write_text(EVENTS_PROTO)
    write = ("produce", topic, "--value-format", "protobuf", "--subject-name-strategy", strategy)
    schema = ("--value-schema", "events.proto")
    shell.run(*write, *schema, "--value-message", "Landing", text=LANDINGS[0])
    subject = theirs(SerializationContext(topic, MessageField.VALUE), "flights.Landing")
    assert "message Landing {" in registry.latest(subject).schema.text
    # Without the file, the subject has the schema.
    shell.run(*write, "--value-message", "flights.Landing", text=LANDINGS[1])
    assert shell.read(topic, "--value-format", "protobuf") == "".join(LANDINGS)
    options = {"group_id": topic, "auto_offset_reset": "earliest"}
    with Consumer(topic, bootstrap_servers=shell.broker, **options) as consumer:
        [first, *_] = consumer.poll(DEADLINE_S)
    value = ProtobufDeserializer(registry)(first.value)
    assert value.DESCRIPTOR.full_name == "flights.Landing"
    errors = shell.run(*write, *schema, "--value-message", "Delay", text=LANDINGS[0], status=2)
    assert "has no message Delay; it has flights.Takeoff, flights.Landing" in errors


def test_a_setting_of_java_clients_chooses_the_subject(
    shell: Shell, topic: str, registry: SchemaRegistry
) -> None:
    (shell.directory / "flight.avsc").write_text(json.dumps(FLIGHT_AVRO))
    setting = "value.subject.name.strategy=io.confluent.kafka.serializers.subject.{}NameStrategy"
    write = ("produce", topic, "-s", "value=avro", "-X", setting.format("TopicRecord"))
    line = '{"origin":"JFK","delay":null,"departed":0,"fare":"1.00","stops":[]}\n'
    shell.run(*write, "--value-schema", "flight.avsc", text=line)
    assert f"{topic}-flights.Flight" in registry.subjects()
    shell.run(*write, "--value-message", "flights.Flight", text=line)
    assert len(shell.read(topic, "-s", "value=avro").splitlines()) == 2
    for words, problem in (
        (write, "the schema has no name for its subject"),
        ((*write[:-1], setting.format("Other")), "there is no strategy 'io.confluent"),
        ((*write, "--subject-name-strategy", "no"), "choose topic, record or topic-record"),
        (
            (*write, "--value-schema", "flight.avsc", "--value-message", "a"),
            "--value-message: the schema in --value-schema names its type",
        ),
        (("produce", topic, "--value-message", "a"), "--value-message needs a format"),
        (("produce", topic, "--key-schema", "flight.avsc"), "--key-schema needs a format"),
    ):
        assert problem in " ".join(shell.run(*words, text=line, status=2).split())
