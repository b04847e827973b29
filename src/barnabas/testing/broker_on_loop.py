"""A broker in this process, on the event loop of an asyncio test.

    async with running_broker(topics=["orders:3"]) as broker:
        async with aio.Producer(broker.bootstrap) as producer: ...

Broker and test share the loop and its thread: a client that blocks would wait for ever. Several
brokers may run at the same time, on one loop or on several.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from barnabas.runtime.loop import close_workers, system_runtime
from barnabas.server.configuration import read_configuration
from barnabas.server.first_topics import FirstTopics, NewTopic, TopicError, parse_topic
from barnabas.server.node import Node
from barnabas.testing.ending_timer import EndingTimer
from barnabas.testing.free_ports import HOST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from barnabas.runtime.loop import Runtime

__all__ = ["BrokerOnLoop", "running_broker"]

# For what hangs; a busy machine may need seconds.
_TIMEOUT_S = 90.0
_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


@asynccontextmanager
async def running_broker(
    *,
    settings: Mapping[str, str] | None = None,
    topics: Sequence[str] = (),
    directory: str | Path | None = None,
) -> AsyncIterator[BrokerOnLoop]:
    """Run a broker on the running loop for the time of an `async with` block.

    Args:
        settings: Kafka's broker keys. Groups form without an initial delay unless
            `group.initial.rebalance.delay.ms` says otherwise.
        topics: NAME or NAME:PARTITIONS each; they exist when the block begins.
        directory: where the data are kept, and stay; a temporary directory when None.

    Raises:
        ConfigError: a key has a wrong value.
        TopicError: a topic cannot be created.
        StorageError: the directory is in use, or another's.
        BaseException: what made the broker fail in the meantime, after an orderly block.
    """
    broker = BrokerOnLoop(directory, settings)
    try:
        await broker.start()
        for topic in topics:
            await broker.create_topic(*msgspec.structs.astuple(parse_topic(topic)))
        yield broker
    finally:
        await broker.close()
    if broker.failure is not None:
        raise broker.failure


class BrokerOnLoop:
    """A lone broker on the running loop; `running_broker` starts and closes it.

    Args:
        directory: where the data are kept, and stay; a temporary directory when None.
        settings: Kafka's broker keys.
    """

    def __init__(
        self, directory: str | Path | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._is_temporary = directory is None
        self.directory = Path(
            tempfile.mkdtemp(prefix="barnabas-") if directory is None else directory
        )
        self._settings = dict(settings or {})
        self.host = HOST
        # 0 before the first start; kept from then on.
        self.port = 0
        # Why the broker cannot go on, if it cannot.
        self.failure: BaseException | None = None
        self._node: Node | None = None
        self._runtime: Runtime | None = None
        self._timer: EndingTimer | None = None
        self._ready: asyncio.Future[str] | None = None

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, what clients call bootstrap.servers."""
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._node is not None

    async def start(self) -> None:
        """Start on the running loop, on the same directory and port as before.

        Raises:
            ConfigError, StorageError, OSError: see `running_broker`.
        """
        assert self._node is None, "the broker runs already"
        loop = asyncio.get_running_loop()
        self.failure = None
        self._ready = loop.create_future()
        self._timer = EndingTimer(loop)
        self._runtime = msgspec.structs.replace(system_runtime(loop), timer=self._timer)
        try:
            configuration = read_configuration(
                {
                    **_SETTINGS,
                    **self._settings,
                    "listeners": f"PLAINTEXT://{self.host}:{self.port}",
                    "log.dirs": str(self.directory),
                }
            )
            node = Node(configuration, self._runtime, self._on_ready, self._on_failed)
            try:
                node.start()
            except BaseException:
                node.abandon()
                raise
            self._node = node
            address = await asyncio.wait_for(self._ready, _TIMEOUT_S)
        except BaseException:
            await self.stop()
            raise
        self.port = int(address.rpartition(":")[2])

    async def stop(self) -> None:
        """Stop cleanly, as SIGTERM does; the data stay until `close`."""
        node, runtime, timer = self._node, self._runtime, self._timer
        if runtime is None or timer is None:
            return
        self._node = self._runtime = self._timer = None
        if node is not None:
            stopped = asyncio.Event()
            node.stop(stopped.set)
            await asyncio.wait_for(stopped.wait(), _TIMEOUT_S)
        timer.close()
        # Connections and listeners are closed by the loop within some turns.
        for _ in range(3):
            await asyncio.sleep(0)
        close_workers(runtime)
        await asyncio.sleep(0)

    async def restart(self) -> None:
        """Stop if it runs, then start on the same directory and port."""
        await self.stop()
        await self.start()

    async def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic unless it exists; its partitions have leaders when this returns.

        Raises:
            TopicError: the name or the number of partitions is not allowed.
        """
        assert self._node is not None, "the broker does not run"
        assert self._node.broker is not None, "a lone node is a broker"
        assert self._timer is not None
        ended = asyncio.Event()
        failures: list[TopicError] = []

        def on_failed(error: TopicError) -> None:
            failures.append(error)
            ended.set()

        parts = self._node.broker.parts
        FirstTopics(parts, self._timer, ended.set, on_failed).create([NewTopic(name, partitions)])
        await ended.wait()
        if failures:
            raise failures[0]

    async def close(self) -> None:
        """Stop, and remove the directory if it is temporary."""
        try:
            await self.stop()
        finally:
            if self._is_temporary:
                shutil.rmtree(self.directory, ignore_errors=True)

    def _on_ready(self, address: str) -> None:
        assert self._ready is not None
        if not self._ready.done():
            self._ready.set_result(address)

    def _on_failed(self, error: BaseException) -> None:
        self.failure = error
        assert self._ready is not None
        if not self._ready.done():
            self._ready.set_exception(error)
