"""Brokers in this process, on the loop of an asyncio test: function and cleanup."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import threading
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas import aio
from barnabas.runtime.loop import close_loop, new_loop, system_runtime
from barnabas.runtime.loop_watch import loop_watch
from barnabas.server.process.first_topics import TopicError
from barnabas.settings.key import ConfigError
from barnabas.storage.errors import StorageError
from barnabas.testing import BrokerOnLoop, running_broker

Run = Callable[[Coroutine[Any, Any, None]], None]
# A limit for what hangs.
TIMEOUT_S = 90.0


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test on a loop; nothing may be left and nothing be warned of."""
    loops = pytest.importorskip(request.param, reason="not all platforms have uvloop")

    def run_whole(test: Coroutine[Any, Any, None]) -> None:
        async def whole() -> None:
            complaints: list[dict[str, Any]] = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: complaints.append(context))
            # libuv opens a descriptor of its own with a loop's first listener.
            (await asyncio.start_server(lambda *_: None, "127.0.0.1")).close()
            await asyncio.sleep(0)
            tasks, threads = asyncio.all_tasks(), threading.active_count()
            descriptors = open_descriptors()
            await asyncio.wait_for(test, TIMEOUT_S)
            gc.collect()
            assert asyncio.all_tasks() == tasks
            assert threading.active_count() == threads
            assert open_descriptors().items() <= descriptors.items()
            assert not complaints

        # What other tests of this process have left open causes warnings from Python 3.13 on.
        gc.collect()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            loops.run(whole())
            gc.collect()
        assert not [str(each.message) for each in warned]

    return run_whole


def open_descriptors() -> dict[str, tuple[int, ...]]:
    """Return the file of each open descriptor of this process: its mode, number and device."""
    # Closes what other tests of this process have left open.
    gc.collect()
    found = {}
    for name in os.listdir("/dev/fd"):
        try:
            found[name] = tuple(os.fstat(int(name)))[:3]
        except OSError:
            continue  # that of the listing itself
    return found


async def write(bootstrap: str, topic: str, *values: bytes) -> None:
    async with aio.Producer(bootstrap) as producer:
        for value in values:
            await (await producer.send(topic, value))


async def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with aio.Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=os.urandom(4).hex(),
        auto_offset_reset="earliest",
    ) as consumer:
        async for record in consumer:
            found.append(record.value)
            if len(found) == count:
                break
    return found


async def partition_count(bootstrap: str, topic: str) -> int:
    async with aio.Admin(bootstrap) as admin:
        return len((await admin.describe_topics([topic]))[topic].partitions)


def test_records_pass_through_a_broker_on_the_loop(run: Run) -> None:
    async def test() -> None:
        async with running_broker(topics=["orders:3"]) as broker:
            assert repr(broker) == f"BrokerOnLoop({broker.bootstrap!r})"
            assert await partition_count(broker.bootstrap, "orders") == 3
            await write(broker.bootstrap, "orders", b"one")
            assert await read(broker.bootstrap, "orders", 1) == [b"one"]
        assert not broker.directory.exists()

    run(test())


def test_two_brokers_on_one_loop_are_independent(run: Run) -> None:
    async def test() -> None:
        async with running_broker() as one, running_broker() as other:
            await one.create_topic("orders", partitions=2)
            await other.create_topic("orders", partitions=5)
            await write(one.bootstrap, "orders", b"here")
            await write(other.bootstrap, "orders", b"there")
            assert await read(one.bootstrap, "orders", 1) == [b"here"]
            assert await partition_count(other.bootstrap, "orders") == 5

    run(test())


def test_a_restarted_broker_keeps_its_records_and_its_address(run: Run) -> None:
    async def test() -> None:
        async with running_broker() as broker:
            before = broker.bootstrap
            await write(before, "orders", b"kept")
            await broker.restart()
            assert broker.bootstrap == before
            assert await read(before, "orders", 1) == [b"kept"]

    run(test())


def test_a_given_directory_stays_and_can_be_used_again(run: Run, tmp_path: Path) -> None:
    async def test() -> None:
        async with running_broker(directory=tmp_path) as broker:
            await write(broker.bootstrap, "orders", b"kept")
        async with running_broker(directory=tmp_path) as broker:
            assert await read(broker.bootstrap, "orders", 1) == [b"kept"]

    run(test())


def test_an_error_of_the_test_is_raised_and_the_broker_ends(run: Run) -> None:
    async def test() -> None:
        with pytest.raises(KeyError, match="of the test"):
            async with running_broker() as broker:
                raise KeyError("of the test")
        assert not broker.is_running

    run(test())


def test_settings_are_the_brokers_keys(run: Run) -> None:
    async def test() -> None:
        async with running_broker(settings={"num.partitions": "4"}) as broker:
            await write(broker.bootstrap, "created", b"value")
            assert await partition_count(broker.bootstrap, "created") == 4
        with pytest.raises(ConfigError, match=r"num\.partitions"):
            async with running_broker(settings={"num.partitions": "none"}):
                pass

    run(test())


def test_a_directory_in_use_is_refused(run: Run, tmp_path: Path) -> None:
    async def test() -> None:
        async with running_broker(directory=tmp_path) as broker:
            with pytest.raises(StorageError, match="used by another process"):
                async with running_broker(directory=tmp_path):
                    pass
            await write(broker.bootstrap, "orders", b"still")

    run(test())


def test_a_restart_on_a_port_that_was_taken_meanwhile_is_refused(run: Run) -> None:
    async def test() -> None:
        broker = BrokerOnLoop()
        await broker.start()
        await broker.stop()
        with (
            socket.create_server((broker.host, broker.port)),
            pytest.raises(OSError, match="in use"),
        ):
            await broker.start()
        gc.collect()
        await broker.start()
        await broker.close()

    run(test())


def test_a_topic_with_a_name_that_is_not_allowed_is_refused(run: Run) -> None:
    async def test() -> None:
        async with running_broker() as broker:
            with pytest.raises(TopicError, match="INVALID_TOPIC_EXCEPTION"):
                await broker.create_topic("bad/name")

    run(test())


def test_a_broker_failure_is_raised_at_the_end_of_the_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with running_broker() as broker:
            assert broker._node is not None
            broker._node.shared.fail(RuntimeError("out of order"))

    caplog.set_level(logging.CRITICAL + 1)
    with pytest.raises(RuntimeError, match="out of order"):
        asyncio.run(test())


def test_a_server_runtime_releases_its_reserve_of_descriptors() -> None:
    before = open_descriptors()
    loop = new_loop()
    runtime = system_runtime(loop, watch=loop_watch(loop))
    assert len(open_descriptors()) >= len(before) + 16
    close_loop(loop, runtime)
    assert open_descriptors().items() <= before.items()
