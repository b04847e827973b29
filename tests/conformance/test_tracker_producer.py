"""Reports of users of aiokafka and kafka-python about producers, tested with ours.

Each test names the project, the number of the issue or change in its tracker, and the fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors

import pytest

import barnabas
import barnabas.aio
from barnabas.client.aio.producer import AsyncDelivery
from barnabas.client.errors import (
    BrokerError,
    ClientClosedError,
    ClientError,
    ClientTimeoutError,
)
from barnabas.protocol.errors import ErrorCode
from conformance.tracker_places import Place, brokers, place, read, read_until
from waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.conformance
__all__ = ["brokers", "place"]

# Config of a producer with short timeouts.
IMPATIENT = {
    "delivery_timeout_ms": 1_500,
    "request_timeout_ms": 1_000,
    "linger_ms": 0,
    "reconnect_backoff_max_ms": 100,
}


def send_until_delivered(producer: barnabas.Producer, topic: str, value: bytes) -> None:
    """Send until a record is delivered, because a slow machine may exceed short timeouts."""

    def is_delivered() -> bool:
        return producer.send(topic, value).exception(PATIENCE_S) is None

    eventually(is_delivered, "no record is delivered")


def values_of(place: Place, topic: str, count: int) -> list[str]:
    with place.consumer() as consumer:
        consumer.assign([(topic, 0)])
        return read(count, consumer)


def test_calls_end_in_time_without_a_broker_and_succeed_when_it_returns(
    place: Place,
) -> None:
    """Reports of a broker that dies.

    aiokafka 1101, 512: awaiting a delivery, and stopping, never ended. kafka-python 1517: sending
    waited forever. aiokafka 267, 517: the producer did not recover after the return of the broker.
    kafka-python 1667: flush succeeded although records were not sent.
    """
    topic, impatient_topic = place.make_topic(), place.make_topic()
    patient = barnabas.Producer(place.broker.bootstrap, reconnect_backoff_max_ms=100)
    impatient = barnabas.Producer(place.broker.bootstrap, **IMPATIENT)
    patient.send(topic, b"before").result(PATIENCE_S)
    send_until_delivered(impatient, impatient_topic, b"before")
    place.broker.kill()
    lost = impatient.send(impatient_topic, b"lost")
    kept = [patient.send(topic, b"kept %d" % number) for number in range(3)]
    with pytest.raises(ClientTimeoutError):
        patient.flush(0.2)
    with pytest.raises(ClientError):
        impatient.flush(PATIENCE_S)
    assert isinstance(lost.exception(0), ClientError)

    async def asyncio_scenario() -> None:
        producer = barnabas.aio.Producer(place.broker.bootstrap, max_block_ms=300, **IMPATIENT)
        with pytest.raises(ClientError):
            await producer.send(topic, b"never")
        await asyncio.wait_for(producer.close(5), PATIENCE_S)

    asyncio.run(asyncio_scenario())
    place.broker.start()
    assert [delivery.result(PATIENCE_S).offset for delivery in kept] == [1, 2, 3]
    send_until_delivered(impatient, impatient_topic, b"after")
    patient.close()
    impatient.close()
    assert values_of(place, topic, 4) == ["before", "kept 0", "kept 1", "kept 2"]
    with place.consumer() as consumer:
        consumer.assign([(impatient_topic, 0)])
        assert set(read_until("after", consumer)) == {"before", "after"}


def test_retried_batches_stay_in_order_and_are_written_once(place: Place) -> None:
    """A broker that dies under load.

    aiokafka 228: a later batch was sent before the retry of an earlier batch. aiokafka 1017: after
    a short outage, all records of an idempotent producer failed with an out-of-order sequence.
    """
    topic = place.make_topic()
    values = [b"%d" % number for number in range(3_000)]
    with barnabas.Producer(
        place.broker.bootstrap, linger_ms=0, batch_size=1_000, reconnect_backoff_max_ms=100
    ) as producer:
        deliveries = [producer.send(topic, value, partition=0) for value in values[:1_500]]
        producer.poll(20)
        place.broker.kill()
        deliveries += [producer.send(topic, value, partition=0) for value in values[1_500:]]
        producer.poll(200)
        place.broker.start()
        producer.flush(PATIENCE_S)
        assert [delivery.result(0).offset for delivery in deliveries] == [*range(3_000)]
    assert values_of(place, topic, 3_000) == [value.decode() for value in values]


def test_a_send_after_close_is_refused_at_once(place: Place) -> None:
    """kafka-python 2542 (of 2060): send waited for metadata until its timeout of a minute."""
    topic = place.make_topic()
    producer = barnabas.Producer(place.broker.bootstrap)
    producer.send(topic, b"x").result(PATIENCE_S)
    producer.close()
    with pytest.raises(ClientClosedError):
        producer.send(topic, b"y")


def test_close_sends_lingering_records_or_fails_them_immediately(place: Place) -> None:
    """kafka-python 2537: close discarded records. 1052: close with timeout zero never ended."""
    topic = place.make_topic()
    producer = barnabas.Producer(place.broker.bootstrap, linger_ms=60_000)
    held = producer.send(topic, b"held")
    producer.close()
    assert held.result(0).offset == 0
    producer = barnabas.Producer(place.broker.bootstrap, linger_ms=60_000)
    dropped = producer.send(topic, b"dropped")
    with pytest.raises(ClientTimeoutError):
        producer.close(0)
    assert dropped.done()
    assert isinstance(dropped.exception(0), ClientError)


def test_a_full_batch_does_not_linger(place: Place) -> None:
    """aiokafka 1142 (of 1137): a full batch waited for linger.ms."""
    topic = place.make_topic()
    with barnabas.Producer(
        place.broker.bootstrap, linger_ms=60_000, batch_size=1_000, partitioner="round_robin"
    ) as producer:
        first = producer.send(topic, bytes(600))
        second = producer.send(topic, bytes(600))
        assert first.result(PATIENCE_S).offset == 0
        assert not second.done()


def test_records_over_a_lowered_limit_are_reported_and_others_are_sent(place: Place) -> None:
    """kafka-python 2426: messages that were too large were lost without an error."""
    topic = place.make_topic()
    with barnabas.Producer(place.broker.bootstrap, linger_ms=0) as producer:
        assert producer.send(topic, bytes(5_000)).result(PATIENCE_S).offset == 0
        with barnabas.Client(place.broker.bootstrap) as client:
            client.alter_topic_configs(topic, {"max.message.bytes": "2000"})
        # Kafka's log applies a config a moment after the response.
        error = eventually(lambda: producer.send(topic, bytes(5_000)).exception(PATIENCE_S))
        assert isinstance(error, BrokerError)
        assert error.error_code is ErrorCode.MESSAGE_TOO_LARGE
        assert producer.send(topic, b"small").result(PATIENCE_S).offset >= 1


def test_the_producer_survives_the_cancellation_of_all_tasks(place: Place) -> None:
    """aiokafka 1039, 710: after a cancellation of its task, the producer never sent or stopped."""
    topic = place.make_topic()

    async def scenario() -> None:
        async with barnabas.aio.Producer(place.broker.bootstrap, linger_ms=20) as producer:
            first = await producer.send(topic, b"first")
            waiting = asyncio.create_task(_wait_for(first))
            await asyncio.sleep(0)
            current = asyncio.current_task()
            for task in asyncio.all_tasks():
                if task is not current:
                    task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            second = await producer.send(topic, b"second")
            await asyncio.wait_for(_wait_for(second), PATIENCE_S)
            assert first.result().offset == 0

    asyncio.run(scenario())
    assert values_of(place, topic, 2) == ["first", "second"]


async def _wait_for(delivery: AsyncDelivery) -> None:
    await delivery


class CountingSelector(selectors.DefaultSelector):
    """Counts the turns of its event loop."""

    turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        return super().select(timeout)


def test_an_idle_producer_does_not_wake_its_loop(place: Place) -> None:
    """kafka-python 2615: after delivery.timeout.ms, the loop of the producer spun forever."""
    topic = place.make_topic()
    selector = CountingSelector()
    turns: list[int] = []

    async def scenario() -> None:
        async with barnabas.aio.Producer(place.broker.bootstrap, **IMPATIENT) as producer:
            with contextlib.suppress(ClientError):
                # On a slow machine, the record may expire; then there is nothing to send, either.
                await (await producer.send(topic, b"x"))
            # Wait for longer than delivery.timeout.ms.
            for wait_s in (1.7, 0.5):
                before = selector.turns
                await asyncio.sleep(wait_s)
                turns.append(selector.turns - before)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(scenario())
    assert max(turns) < 50
