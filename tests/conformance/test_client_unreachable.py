"""A broker that advertises an address where nobody is: every face says so, and what to check."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

import barnabas
import barnabas.aio
from barnabas.client.errors import (
    ClientError,
    ClientTimeoutError,
    NoBrokersError,
    UnreachableBrokerError,
)
from barnabas.client.facade import Client
from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import KafkaProcess

pytestmark = pytest.mark.conformance

NOWHERE = "127.0.0.1:1"
SOON = {"reconnect_backoff_max_ms": 50, "retry_backoff_ms": 20}


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def wrong_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | KafkaProcess]:
    directory = tmp_path_factory.mktemp(request.param)
    settings = {"advertised.listeners": f"PLAINTEXT://{NOWHERE}"}
    kind = KafkaProcess if request.param == "kafka" else BrokerProcess
    made = kind(directory, settings)
    made.start()
    try:
        yield made
    finally:
        made.kill()


def says_all(error: BaseException, bootstrap: str) -> None:
    """What metadata said and was dialled, what came of it, what answered, what to check."""
    text = str(error)
    assert f"does not answer at {NOWHERE}: Connection refused" in text
    assert f"bootstrap.servers={bootstrap}; answered so far: {bootstrap}" in text
    assert "advertised.listeners" in text


def test_a_producer_gives_it_as_the_reason(wrong_broker: BrokerProcess | KafkaProcess) -> None:
    bootstrap = wrong_broker.bootstrap
    with barnabas.Producer(
        bootstrap, delivery_timeout_ms=1_500, request_timeout_ms=1_000, linger_ms=0
    ) as producer:
        future = producer.send("t", b"v")
        with pytest.raises(ClientError) as raised:
            producer.flush()
        says_all(raised.value, bootstrap)
        assert future is not None


def test_a_consumer_says_it_when_asked_and_logs_it_once(
    wrong_broker: BrokerProcess | KafkaProcess, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap = wrong_broker.bootstrap
    with Client(bootstrap, default_api_timeout_ms=3_000) as client:
        client.topics()
    with (
        caplog.at_level(logging.WARNING, "barnabas"),
        barnabas.Consumer(
            bootstrap_servers=bootstrap, allow_auto_create_topics=True, reconnect_backoff_max_ms=50
        ) as consumer,
    ):
        consumer.assign([("t", 0)])
        assert len(consumer.poll(1.0)) == 0
        with pytest.raises(ClientTimeoutError) as raised:
            consumer.position(("t", 0), timeout=0.5)
    says_all(raised.value, bootstrap)
    assert isinstance(raised.value.__cause__, UnreachableBrokerError)
    [message] = [record.getMessage() for record in caplog.records]
    assert message == str(raised.value.__cause__)


def test_an_admin_call_gives_it_as_the_reason(wrong_broker: BrokerProcess | KafkaProcess) -> None:
    bootstrap = wrong_broker.bootstrap
    with Client(bootstrap, default_api_timeout_ms=1_500) as client:
        with pytest.raises(ClientError) as raised:
            client.list_offsets({("t", 0): "latest"})
        says_all(raised.value, bootstrap)


# No broker at all


def says_once(caplog: pytest.LogCaptureFixture, error: BaseException) -> None:
    """What was dialled and what came of it: in the log one time, and in an error that it led to."""
    [message] = [record.getMessage() for record in caplog.records]
    assert f"dialled: {NOWHERE} Connection refused" in message
    assert f"dialled: {NOWHERE} Connection refused" in str(error)


def test_a_member_polls_on_while_no_broker_answers_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        caplog.at_level(logging.WARNING, "barnabas"),
        barnabas.Consumer("t", bootstrap_servers=NOWHERE, group_id="g", **SOON) as consumer,
    ):
        assert consumer.trouble is None
        for _ in range(3):
            assert len(consumer.poll(0.1)) == 0
        assert isinstance(consumer.trouble, NoBrokersError)
        consumer.unsubscribe()
        consumer.assign([("t", 0)])
        with pytest.raises(ClientTimeoutError) as raised:
            consumer.position(("t", 0), timeout=0.2)
    says_once(caplog, raised.value)


def test_a_member_on_asyncio_says_the_same(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> ClientTimeoutError:
        async with barnabas.aio.Consumer(
            "t", bootstrap_servers=NOWHERE, group_id="g", **SOON
        ) as consumer:
            for _ in range(3):
                assert len(await consumer.poll(0.1)) == 0
            assert isinstance(consumer.trouble, NoBrokersError)
            await consumer.unsubscribe()
            consumer.assign([("t", 0)])
            with pytest.raises(ClientTimeoutError) as raised:
                await consumer.position(("t", 0), timeout=0.2)
            return raised.value

    with caplog.at_level(logging.WARNING, "barnabas"):
        error = asyncio.run(story())
    says_once(caplog, error)
