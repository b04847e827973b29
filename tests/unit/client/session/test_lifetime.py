"""The lifetime of clients: they belong to one process, and the user has to close them."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark import cloudpickle

import barnabas
import barnabas.aio
from barnabas.client.connections.metadata_cache import PartitionInfo, TopicInfo
from barnabas.client.errors import ClientConfigError, ClientTimeoutError
from barnabas.client.facade import Client
from barnabas.client.session import lifetime
from barnabas.client.session.lifetime import ClosedByUser, Lifetime
from barnabas.client.share.share_consumer import ShareConsumer

ADDRESS = "127.0.0.1:1"
KEYS = {"bootstrap_servers": ADDRESS, "group_id": "g"}
COPIES: dict[str, Callable[[Any], object]] = {
    "pickle": pickle.dumps,
    # Spark pickles functions with it.
    "function": lambda client: cloudpickle.dumps(lambda: client),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def check_refused(client: object, copied: str) -> None:
    with pytest.raises(TypeError, match="create it inside the function that another process"):
        COPIES[copied](client)


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: barnabas.Producer(ADDRESS),
        lambda: barnabas.Consumer(**KEYS),
        lambda: barnabas.ShareConsumer(**KEYS),
        lambda: barnabas.Admin(ADDRESS),
        lambda: barnabas.Client(ADDRESS),
    ],
    ids=["producer", "consumer", "share consumer", "admin", "client"],
)
def test_a_client_is_neither_pickled_nor_copied(make: Callable[[], Any], copied: str) -> None:
    with make() as client:
        check_refused(client, copied)


@pytest.mark.parametrize("copied", COPIES)
def test_the_parts_of_a_client_are_neither_pickled_nor_copied(copied: str) -> None:
    with barnabas.Client(ADDRESS) as client:
        check_refused(client.admin, copied)
        with client.producer() as producer:
            check_refused(producer, copied)


@pytest.mark.parametrize("copied", COPIES)
def test_an_asyncio_client_is_neither_pickled_nor_copied(copied: str) -> None:
    async def run() -> None:
        async with barnabas.aio.Producer(ADDRESS) as producer:
            check_refused(producer, copied)

    asyncio.run(run())


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> None:
    """Keep the objects of all earlier tests out of the collections of these tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_other_clients() -> Iterator[None]:
    """Collect clients of other tests before and after each test."""
    gc.collect()
    yield
    gc.collect()
    lifetime._dropped.clear()


def producer_with_records(count: int) -> barnabas.Producer:
    """Return a producer that has queued records without any broker."""
    producer = barnabas.Producer(ADDRESS, linger_ms=1_000)
    metadata = producer._core.cluster.metadata
    metadata.topics["t"] = TopicInfo("t", bytes(16), False, {0: PartitionInfo(0, 1, 4)})
    for _ in range(count):
        producer.send("t", b"v")
    return producer


def drop(client: object) -> None:
    """Delete the last reference to a client and collect it."""
    del client
    gc.collect()


@pytest.mark.parametrize(
    "make",
    [
        lambda: barnabas.Producer(ADDRESS),
        lambda: barnabas.Consumer(**KEYS),
        lambda: ShareConsumer(**KEYS),
        lambda: barnabas.Admin(ADDRESS),
        lambda: Client(ADDRESS),
    ],
    ids=["producer", "consumer", "share consumer", "admin", "client"],
)
def test_the_garbage_collector_warns_of_a_client_that_is_not_closed(
    make: Callable[[], Any],
) -> None:
    with pytest.warns(ResourceWarning, match="was not closed: call close"):
        drop(make())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().close()
        gc.collect()


def test_records_of_a_dropped_producer_are_counted_and_kept_for_the_end_of_the_program(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.warns(ResourceWarning, match="not closed; 3 records were not delivered yet"):
        drop(producer_with_records(3))
    assert "dropped but not closed" in caplog.text
    (kept,) = lifetime._dropped
    assert kept._undelivered() == 3
    kept.close(flush=False)  # type: ignore[attr-defined]


def test_a_forked_child_does_not_warn_of_clients_of_its_parent() -> None:
    producer = producer_with_records(1)
    child = os.fork()
    if child == 0:
        warnings.simplefilter("error")
        os._exit(int(producer._is_left_open))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert producer._is_left_open
    producer.close(flush=False)


def test_a_client_that_could_not_be_created_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ClientConfigError):
            barnabas.Producer(ADDRESS, nonsense=1)
        gc.collect()


class Loss(ClosedByUser):
    """A client that cannot deliver its records."""

    def __init__(self, has_transaction: bool = False) -> None:
        self._has_open_transaction = has_transaction
        self.lifetime = Lifetime("loss")
        self.timeouts: list[float] = []
        self._watch(self.lifetime)

    def _undelivered(self) -> int:
        return 2

    @property
    def _has_transaction(self) -> bool:
        return self._has_open_transaction

    def _close_at_exit(self, timeout: float) -> None:
        self.timeouts.append(timeout)
        self.lifetime.end()
        raise ClientTimeoutError("no broker responded")


def test_records_that_the_end_of_the_program_cannot_deliver_are_logged_as_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    losses = [Loss(), Loss(has_transaction=True)]
    with pytest.warns(ResourceWarning, match="2 records were not delivered yet"):
        lifetime._close_all()
    assert [len(loss.timeouts) for loss in losses] == [1, 1]
    assert sum(max(loss.timeouts) for loss in losses) <= 2 * lifetime.AT_EXIT_S
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 2
    assert "Records are lost" in errors[0]
    assert "A transaction was not committed" in caplog.text
    lifetime._close_all()
    assert [len(loss.timeouts) for loss in losses] == [1, 1]


@pytest.mark.parametrize("kind", ["Consumer", "ShareConsumer", "Producer", "Admin"])
def test_an_asyncio_client_that_is_not_closed_is_ended_with_its_loop(kind: str) -> None:
    servers = {"bootstrap_servers": f"{ADDRESS},127.0.0.1:2,127.0.0.1:3"}

    async def main() -> None:
        match kind:
            case "Consumer" | "ShareConsumer":
                consumer = getattr(barnabas.aio, kind)("t", **servers, group_id="g")
                await consumer.poll(0)
            case "Producer":
                producer = barnabas.aio.Producer(**servers)
                call = asyncio.ensure_future(producer.partitions_for("t"))
                await asyncio.sleep(0)
                assert not call.done()
            case _:
                admin = barnabas.aio.Admin(**servers)
                call = asyncio.ensure_future(admin.list_topics())
                await asyncio.sleep(0)
                assert not call.done()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    messages = [str(each.message) for each in caught]
    assert len(messages) == 1, messages
    assert "was not closed: call close()" in messages[0]
