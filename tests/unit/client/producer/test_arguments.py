"""Invalid arguments of `send` and `send_batch` are refused by name at the call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from barnabas.client.aio.producer import Producer as AsyncProducer
from barnabas.client.errors import (
    ClientError,
    ClientTimeoutError,
    InvalidRecordError,
    UnfitRecordError,
    UnusableResponseError,
)
from barnabas.client.producer.producer import Producer
from barnabas.record.reader import records
from unit.client.producer.producer_setup import Setup

if TYPE_CHECKING:
    from barnabas.client.producer.user_objects import ProducerRecord

# Arguments of `send`, the kind of error, and the words that name the argument.
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"topic": None}, TypeError, "the topic is a NoneType"),
    ({"topic": b"t"}, TypeError, "the topic is a bytes"),
    ({"topic": ["t"]}, TypeError, "the topic is a list"),
    ({"topic": ""}, ValueError, "the topic is ''"),
    ({"topic": " "}, ValueError, "the topic is ' '"),
    ({"partition": "0"}, TypeError, "its partition is a str"),
    ({"partition": 0.0}, TypeError, "its partition is a float"),
    ({"partition": True}, TypeError, "its partition is a bool"),
    ({"timestamp_ms": 1.5}, TypeError, "its timestamp is a float"),
    ({"timestamp_ms": "now"}, TypeError, "its timestamp is a str"),
    ({"timestamp_ms": True}, TypeError, "its timestamp is a bool"),
    ({"timestamp_ms": -1}, ValueError, "its timestamp is -1"),
    ({"timestamp_ms": 2**63}, ValueError, f"its timestamp is {2**63}"),
    ({"key": "k"}, TypeError, "its key is a str"),
    ({"key": 5}, TypeError, "its key is an int"),
    ({"value": "v"}, TypeError, "its value is a str"),
    ({"headers": {"a": b"b"}}, TypeError, "its headers are a dict"),
    ({"headers": 5}, TypeError, "its headers are an int"),
    ({"headers": [["a", b"b"]]}, TypeError, "one of its headers is a list"),
    ({"headers": [("a", "b")]}, TypeError, "its header 'a' is a str"),
    ({"headers": [(b"a", b"b")]}, TypeError, "the name of a header is a bytes"),
    ({"headers": [("\ud800", b"b")]}, TypeError, "the name of a header cannot be encoded"),
    ({"on_delivery": 5}, TypeError, "on_delivery is an int"),
    ({"timestamp": 5}, TypeError, "send has no argument timestamp"),
]
# Of one record, as `send_batch` takes it.
REFUSED_RECORDS: list[tuple[Any, type[Exception], str]] = [
    (b"value", TypeError, "it is a bytes"),
    ((b"key", b"value"), TypeError, "it is a tuple of 2"),
    (("k", b"v", (), None), TypeError, "its key is a str"),
    ((None, 7, (), None), TypeError, "its value is an int"),
    ((None, b"v", (), 1.5), TypeError, "its timestamp is a float"),
    ((None, b"v", (), True), TypeError, "its timestamp is a bool"),
    ((None, b"v", (), -5), ValueError, "its timestamp is -5"),
    ((None, b"v", (), 2**70), ValueError, f"its timestamp is {2**70}"),
    ((None, b"v", [("a", 5)], None), TypeError, "its header 'a' is an int"),
]
FIT = (None, b"fit", (), None)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(("given", "kind", "words"), REFUSED)
def test_send_refuses_an_invalid_argument_and_sends_other_records(
    given: dict[str, Any], kind: type[Exception], words: str, is_first: bool
) -> None:
    setup = Setup()
    arguments = {"topic": "t", "value": b"v", "partition": 0, **given}
    if not is_first:
        setup.producer.send("t", b"before", partition=0)
    with pytest.raises(ClientError) as caught:
        setup.producer.send(**arguments)
    assert isinstance(caught.value, kind)
    assert words in str(caught.value)
    setup.producer.send("t", b"behind", partition=0)
    assert sent(setup) == ([] if is_first else [b"before"]) + [b"behind"]
    assert not setup.cluster.refreshes


@pytest.mark.parametrize("partition", [0, None])
@pytest.mark.parametrize("before", [[], [FIT]])
@pytest.mark.parametrize(("record", "kind", "words"), REFUSED_RECORDS)
def test_send_batch_refuses_an_invalid_argument(
    record: Any, kind: type[Exception], words: str, before: list[Any], partition: int | None
) -> None:
    setup = Setup()
    with pytest.raises(ClientError) as caught:
        setup.producer.send_batch("t", [*before, record], partition)
    assert isinstance(caught.value, kind)
    assert words in str(caught.value)


@pytest.mark.parametrize(("given", "kind", "words"), REFUSED)
def test_the_asyncio_producer_refuses_an_invalid_argument(
    given: dict[str, Any], kind: type[Exception], words: str
) -> None:
    async def send() -> None:
        producer = AsyncProducer("127.0.0.1:1", max_block_ms=1)
        producer._core.cluster.metadata = Setup().cluster.metadata
        producer._core._metadata = producer._core.cluster.metadata
        try:
            await producer.send(**{"topic": "t", "value": b"v", "partition": 0, **given})
        finally:
            await producer.close(flush=False)

    with pytest.raises(ClientError) as caught:
        asyncio.run(send())
    assert isinstance(caught.value, kind)
    assert words in str(caught.value)


@pytest.mark.parametrize(("record", "kind", "words"), REFUSED_RECORDS)
def test_the_asyncio_producer_refuses_an_invalid_argument_in_a_batch(
    record: Any, kind: type[Exception], words: str
) -> None:
    async def send() -> None:
        producer = AsyncProducer("127.0.0.1:1", max_block_ms=1)
        producer._core.cluster.metadata = Setup().cluster.metadata
        producer._core._metadata = producer._core.cluster.metadata
        try:
            await producer.send_batch("t", [record], partition=0)
        finally:
            await producer.close(flush=False)

    with pytest.raises(ClientError) as caught:
        asyncio.run(send())
    assert isinstance(caught.value, kind)
    assert words in str(caught.value)


def test_a_partition_that_is_no_number_is_refused_without_a_broker() -> None:
    with (
        Producer("127.0.0.1:1") as producer,
        pytest.raises(UnfitRecordError, match="its partition is a str"),
    ):
        producer.send("t", b"v", partition="0")  # type: ignore[arg-type]


def test_compatible_types_of_numbers_and_bytes_are_accepted() -> None:
    setup = Setup()
    setup.producer.send("t", bytearray(b"v"), memoryview(b"k"), partition=np.int32(1))
    setup.producer.send("t", b"v", bytearray(b"k"), timestamp_ms=np.int64(7))
    same = setup.producer.send("t", b"v", b"k")
    found = [record for batch in closed(setup) for record in records(batch)]
    assert [record.key for record in found] == [b"k", b"k", b"k"]
    assert 7 in {record.timestamp for record in found}
    assert (
        same._final().tp.partition
        == setup.producer.send("t", None, memoryview(b"k"))._final().tp[1]
    )


def test_an_invalid_result_of_a_partitioner_is_an_error() -> None:
    for chosen in ("0", 1.5, True, None, 2, -1):
        setup = Setup(partitioner=lambda *_given, chosen=chosen: chosen)
        with pytest.raises(ValueError, match="the partitioner chose"):
            setup.producer.send("t", b"v")
        assert not setup.producer._accumulator.incomplete()


def test_an_interceptor_that_returns_none_changes_nothing() -> None:
    class Forgetful:
        def on_send(self, _record: ProducerRecord) -> None:
            pass

        def on_acknowledgement(self, _metadata: object, _error: object) -> None:
            pass

        def close(self) -> None:
            pass

    setup = Setup({"interceptors": [Forgetful()]})
    setup.producer.send("t", b"v", partition=0)
    assert sent(setup) == [b"v"]


def test_an_error_while_metadata_is_read_ends_the_wait_for_it() -> None:
    setup = Setup()
    setup.cluster.metadata.topics.clear()
    broken: Any = setup.cluster
    broken.refresh = lambda _topics, on_done: on_done(None, ClientError("unusable"))
    with pytest.raises(ClientError, match="unusable"):
        setup.producer.send("t", b"v")


def test_missing_metadata_is_awaited_for_max_block_ms() -> None:
    setup = Setup(max_block_ms=100)
    setup.cluster.metadata.topics.clear()
    silent: Any = setup.cluster
    silent.refresh = lambda _topics, _on_done: None
    with pytest.raises(ClientTimeoutError, match=r"metadata of t .* max_block_ms=100"):
        setup.producer.send("t", b"v")
    assert setup.cluster.time.now < 10_000


def test_a_flush_without_timeout_ends_after_the_delivery_timeout() -> None:
    setup = Setup(delivery_timeout_ms=2_000, request_timeout_ms=1_000, enable_idempotence=False)
    delivery = setup.producer.send("t", b"v", partition=0)
    # The request is never answered, and its connection never ends.
    setup.cluster.call = lambda _node_id, _call: None  # type: ignore[method-assign]
    with pytest.raises(ClientTimeoutError, match="flush"):
        setup.producer.flush()
    assert setup.cluster.time.now < 10_000
    with pytest.raises(ClientTimeoutError, match="t-0"):
        delivery.result()


def test_a_delivery_callback_that_raises_does_not_affect_other_records() -> None:
    setup = Setup()
    told: list[object] = []

    def fail(_metadata: object, _error: object) -> None:
        raise RuntimeError("of the user")

    setup.producer.send("t", b"a", partition=0, on_delivery=fail)
    setup.producer.send("t", b"b", partition=0, on_delivery=lambda *given: told.append(given))
    (batch,) = setup.producer._accumulator.incomplete()
    batch.complete(5, -1)
    batch.run_callbacks()
    assert len(told) == 1


def test_the_errors_are_client_errors_and_builtin_errors() -> None:
    assert issubclass(UnfitRecordError, TypeError)
    assert issubclass(InvalidRecordError, ValueError)
    assert issubclass(UnusableResponseError, ClientError)


def closed(setup: Setup) -> list[Any]:
    batches = setup.producer._accumulator.incomplete()
    for batch in batches:
        batch.close(0, None)
    found = [batch.data for batch in batches]
    for queue in setup.producer._accumulator.queues.values():
        queue.open = None
    return found


def sent(setup: Setup) -> list[bytes | None]:
    return [record.value for batch in closed(setup) for record in records(batch)]
