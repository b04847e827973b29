"""Programs that end without `close` or `flush`: records are delivered, with a warning."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator

import pytest

from barnabas.client.facade import Client
from barnabas.testing.broker_process import BrokerProcess
from conformance.client_brokers import broker
from jvm.kafka_process import KafkaProcess
from waiting import PATIENCE_S

pytestmark = pytest.mark.conformance
__all__ = ["broker"]

Broker = BrokerProcess | KafkaProcess
COUNT = 1_000

PROGRAMS = {
    "a producer in a function": """
        import barnabas
        def main():
            producer = barnabas.Producer(BOOTSTRAP)
            for n in range(1_000):
                producer.send(TOPIC, b"%d" % n)
        main()
    """,
    "a producer of a client": """
        from barnabas.client.facade import Client
        client = Client(BOOTSTRAP)
        producer = client.producer()
        for n in range(1_000):
            producer.send(TOPIC, b"%d" % n)
    """,
    "a dropped producer": """
        import gc, barnabas
        producer = barnabas.Producer(BOOTSTRAP)
        for n in range(1_000):
            producer.send(TOPIC, b"%d" % n)
        del producer
        gc.collect()
    """,
    "an asyncio producer": """
        import asyncio, barnabas.aio
        async def main():
            producer = barnabas.aio.Producer(BOOTSTRAP)
            for n in range(1_000):
                await producer.send(TOPIC, b"%d" % n)
        asyncio.run(main())
    """,
}

TRANSACTION = """
    import barnabas
    producer = barnabas.Producer(BOOTSTRAP, transactional_id=TOPIC)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(TOPIC, b"v").result()
"""


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap, default_api_timeout_ms=30_000) as made:
        yield made


@pytest.fixture
def topic(client: Client) -> str:
    name = f"ends-{uuid.uuid4().hex[:8]}"
    client.create_topic(name, partitions=1, replication_factor=1)
    return name


def run(broker: Broker, topic: str, program: str) -> str:
    """Run a program to its end and return its standard error."""
    names = f"BOOTSTRAP, TOPIC = {broker.bootstrap!r}, {topic!r}\n"
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", names + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_records_are_delivered_when_the_program_ends(
    broker: Broker, client: Client, topic: str, program: str
) -> None:
    errors = run(broker, topic, program)
    assert "was not closed" in errors
    assert "records were not delivered yet" in errors
    assert "never awaited" not in errors
    (end,) = client.list_offsets({(topic, 0): "latest"}).values()
    assert end.offset == COUNT


def test_an_open_transaction_is_aborted_when_the_program_ends(
    broker: Broker, client: Client, topic: str
) -> None:
    errors = run(broker, topic, TRANSACTION)
    assert "A transaction was not committed" in errors
    assert client.admin.describe_transactions([topic])[topic].state == "CompleteAbort"
