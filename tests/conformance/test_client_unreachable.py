"""A broker that advertises an unreachable address: every interface reports it with advice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

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
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.testing.broker_process import BrokerProcess
from conformance.raw_client import RawClient
from jvm.kafka_process import KafkaProcess
from waiting import PATIENCE_S, eventually

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
        make_topic(made.bootstrap, "t")
        yield made
    finally:
        made.kill()


def make_topic(bootstrap: str, name: str) -> None:
    """Create the topic over the bootstrap connection."""
    raw = RawClient(bootstrap)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
    )

    def has_leader() -> bool:
        response: Any = raw.ask(request, 9)
        (topic,) = response.topics
        return not topic.error_code and topic.partitions[0].leader_id >= 0

    eventually(has_leader)
    raw.close()


def refused(call: Callable[[], object]) -> ClientError:
    """Return the error of a call after the connection attempt has failed.

    On a slow machine, the first calls may fail before the connection attempt.
    """

    def error() -> ClientError | None:
        with pytest.raises(ClientError) as raised:
            call()
        return raised.value if "Connection refused" in str(raised.value) else None

    found = eventually(error)
    assert found is not None
    return found


def check_advice(error: BaseException, bootstrap: str) -> None:
    """Check for the advertised address, the failure, the bootstrap server and the advice."""
    text = str(error)
    assert f"does not respond at {NOWHERE}: Connection refused" in text
    assert f"bootstrap.servers={bootstrap}; responded so far: {bootstrap}" in text
    assert "advertised.listeners" in text


def test_the_error_of_a_producer_contains_the_reason(
    wrong_broker: BrokerProcess | KafkaProcess,
) -> None:
    bootstrap = wrong_broker.bootstrap
    with barnabas.Producer(
        bootstrap, delivery_timeout_ms=1_500, request_timeout_ms=1_000, linger_ms=0
    ) as producer:

        def send() -> None:
            producer.send("t", b"v")
            producer.flush()

        check_advice(refused(send), bootstrap)


def test_a_consumer_reports_the_reason_on_request_and_logs_it_once(
    wrong_broker: BrokerProcess | KafkaProcess, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap = wrong_broker.bootstrap
    with Client(bootstrap) as client:
        assert client.topics() == ["t"]
    with (
        caplog.at_level(logging.WARNING, "barnabas"),
        barnabas.Consumer(bootstrap_servers=bootstrap, reconnect_backoff_max_ms=50) as consumer,
    ):
        consumer.assign([("t", 0)])
        assert len(consumer.poll(1.0)) == 0
        error = refused(lambda: consumer.position(("t", 0), timeout=0.5))
    check_advice(error, bootstrap)
    assert isinstance(error, ClientTimeoutError)
    assert isinstance(error.__cause__, UnreachableBrokerError)
    [message] = [record.getMessage() for record in caplog.records]
    assert message == str(error.__cause__)


def test_the_error_of_an_admin_call_contains_the_reason(
    wrong_broker: BrokerProcess | KafkaProcess,
) -> None:
    bootstrap = wrong_broker.bootstrap
    with Client(bootstrap, default_api_timeout_ms=1_500) as client:
        error = refused(lambda: client.list_offsets({("t", 0): "latest"}))
        check_advice(error, bootstrap)


# No broker at all


def check_logged_once(caplog: pytest.LogCaptureFixture, error: BaseException) -> None:
    """Check that the failed connection is logged once and is in the error."""
    [message] = [record.getMessage() for record in caplog.records]
    assert f"dialed: {NOWHERE} Connection refused" in message
    assert f"dialed: {NOWHERE} Connection refused" in str(error)


def test_a_member_keeps_polling_without_a_broker_and_logs_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        caplog.at_level(logging.WARNING, "barnabas"),
        barnabas.Consumer("t", bootstrap_servers=NOWHERE, group_id="g", **SOON) as consumer,
    ):
        assert consumer.trouble is None

        def is_in_trouble() -> bool:
            assert len(consumer.poll(0.1)) == 0
            return consumer.trouble is not None

        eventually(is_in_trouble)
        assert isinstance(consumer.trouble, NoBrokersError)
        consumer.unsubscribe()
        consumer.assign([("t", 0)])
        error = refused(lambda: consumer.position(("t", 0), timeout=0.2))
        assert isinstance(error, ClientTimeoutError)
    check_logged_once(caplog, error)


def test_an_asyncio_member_keeps_polling_without_a_broker_and_logs_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> ClientTimeoutError:
        async with barnabas.aio.Consumer(
            "t", bootstrap_servers=NOWHERE, group_id="g", **SOON
        ) as consumer:
            async with asyncio.timeout(PATIENCE_S):
                while consumer.trouble is None:
                    assert len(await consumer.poll(0.1)) == 0
            assert isinstance(consumer.trouble, NoBrokersError)
            await consumer.unsubscribe()
            consumer.assign([("t", 0)])
            with pytest.raises(ClientTimeoutError) as raised:
                await consumer.position(("t", 0), timeout=0.2)
            return raised.value

    with caplog.at_level(logging.WARNING, "barnabas"):
        error = asyncio.run(scenario())
    check_logged_once(caplog, error)
