"""Java clients of 2015 to 2017."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from conformance import client_scenarios
from conformance.client_program import ClientProgram
from jvm.java import java_command
from selection import nightly_unless
from waiting import eventually

PROGRAM = Path(__file__).parent / "programs" / "OldJavaProgram.java"
COMPRESSIONS = ("none", "gzip", "snappy", "lz4")
COUNT = 50

Run = Callable[[list[tuple[str, str, str, int]]], list]


@pytest.fixture(
    scope="module", params=nightly_unless("0.9.0.1".__eq__, ["0.9.0.1", "0.10.2.2", "0.11.0.3"])
)
def run(request: pytest.FixtureRequest, old_clients_bootstrap: str) -> Run:
    """Return a function that runs actions one after the other in one process."""
    command = [*java_command(f"kafka-clients-{request.param}", source=PROGRAM), PROGRAM.stem]

    def run_actions(actions: list[tuple[str, str, str, int]]) -> list:
        words = [str(word) for action in actions for word in action]
        done = subprocess.run(
            [*command, old_clients_bootstrap, *words],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
        return json.loads(done.stdout.strip().splitlines()[-1])

    return run_actions


def expected_records() -> list[list]:
    return [[i, None if i % 3 == 0 else f"k-{i}", f"v-{i}"] for i in range(COUNT)]


def test_records_of_an_old_producer_are_read_by_old_and_new_consumers(
    run: Run, old_clients_bootstrap: str
) -> None:
    client = ClientProgram([], old_clients_bootstrap)
    topics = {compression: client_scenarios.make_topic(client) for compression in COMPRESSIONS}
    actions = [("produce", topic, name, COUNT) for name, topic in topics.items()]
    actions += [("consume", topic, f"group-{topic}", COUNT) for topic in topics.values()]
    results = run(actions)
    assert results[: len(topics)] == [list(range(COUNT))] * len(topics)
    assert results[len(topics) :] == [expected_records()] * len(topics)
    for compression, topic in topics.items():
        assert client_scenarios.stored_compression(client, topic) == {compression}
        assert read_by_librdkafka(old_clients_bootstrap, topic) == expected_records()


def test_records_of_new_producers_are_read_by_an_old_group(
    run: Run, old_clients_bootstrap: str
) -> None:
    client = ClientProgram([], old_clients_bootstrap)
    topics = {compression: client_scenarios.make_topic(client) for compression in COMPRESSIONS}
    for compression, topic in topics.items():
        fill_by_librdkafka(old_clients_bootstrap, topic, compression)
    groups = {topic: f"group-{topic}" for topic in topics.values()}
    results = run([("consume", topic, groups[topic], COUNT) for topic in groups])
    assert results == [expected_records()] * len(topics)
    for topic, group in groups.items():
        consumer = Consumer({"bootstrap.servers": old_clients_bootstrap, "group.id": group})
        (found,) = consumer.committed([TopicPartition(topic, 0)], 60)
        consumer.close()
        assert found.offset == COUNT


def test_an_old_producer_gets_the_error_of_a_record_that_is_too_large(
    run: Run, old_clients_bootstrap: str
) -> None:
    client = ClientProgram([], old_clients_bootstrap)
    topic = client_scenarios.make_topic(client, max_message_bytes="2000")
    assert run([("too-large", topic, "-", 5000)]) == [True]


def fill_by_librdkafka(bootstrap: str, topic: str, compression: str) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": compression, "linger.ms": 50}
    )
    for _, key, value in expected_records():
        producer.produce(topic, value, key, partition=0, headers=[("h", b"x")])
    assert producer.flush(20) == 0


def read_by_librdkafka(bootstrap: str, topic: str) -> list[list]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[list] = []

    def has_read() -> bool:
        for each in consumer.consume(COUNT, 0.5):
            assert each.error() is None, each.error()
            key = each.key()
            found.append([each.offset(), key and key.decode(), each.value().decode()])
        return len(found) >= COUNT

    eventually(has_read)
    consumer.close()
    return found
