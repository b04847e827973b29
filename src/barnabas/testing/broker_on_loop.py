"""A broker in the test's process, on the event loop of an asyncio test.

    async with running_broker(topics=["orders:3"]) as broker:
        async with aio.Producer(broker.bootstrap) as producer: ...

Broker and test share the loop and its thread, so a blocking client would wait forever. Several
brokers can run at the same time, on the same loop or on different loops.
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
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.process.first_topics import FirstTopics, NewTopic, TopicError, parse_topic
from barnabas.server.process.node import Node
from barnabas.testing.broker_process import BROKER_SETTINGS
from barnabas.testing.free_ports import HOST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from barnabas.runtime.loop import Runtime


__all__ = ["BrokerOnLoop", "running_broker"]

_MS_PER_S = 1000.0
# Number of handles at which cancelled handles are removed for the first time.
_PRUNE_FROM = 256


class EndingTimer:
    """A `Timer` whose pending calls are canceled by `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Handles of pending calls, including handles that their owner has canceled.
        self._handles: set[asyncio.Handle] = set()
        self._prune_at = _PRUNE_FROM
        self._is_closed = False

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> asyncio.Handle:
        """Call `callback` after `delay_ms`, unless `close` comes first."""
        handle: asyncio.Handle

        def run() -> None:
            self._handles.discard(handle)
            callback()

        handle = self._loop.call_later(delay_ms / _MS_PER_S, run)
        if self._is_closed:
            handle.cancel()
        else:
            self._keep(handle)
        return handle

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the next loop iteration, unless `close` comes first."""

        def run() -> None:
            if not self._is_closed:
                callback()

        self._loop.call_soon(run)

    def close(self) -> None:
        """Cancel all pending calls and all later ones."""
        self._is_closed = True
        for handle in self._handles:
            handle.cancel()
        self._handles.clear()

    def _keep(self, handle: asyncio.Handle) -> None:
        self._handles.add(handle)
        if len(self._handles) > self._prune_at:
            self._handles = {each for each in self._handles if not each.cancelled()}
            self._prune_at = 2 * len(self._handles) + _PRUNE_FROM


# Only a limit for operations that hang; long enough for a busy machine.
_TIMEOUT_S = 90.0


@asynccontextmanager
async def running_broker(
    *,
    settings: Mapping[str, str] | None = None,
    topics: Sequence[str] = (),
    directory: str | Path | None = None,
) -> AsyncIterator[BrokerOnLoop]:
    """Run a broker on the running loop during an `async with` block.

    Args:
        settings: Kafka's broker keys. Groups form without an initial delay unless
            `group.initial.rebalance.delay.ms` is given.
        topics: NAME or NAME:PARTITIONS each; the topics exist when the block begins.
        directory: directory of the data, which is kept; a temporary directory when None.

    Raises:
        ConfigError: a key has an invalid value.
        TopicError: a topic cannot be created.
        StorageError: the directory is in use or belongs to another node.
        BaseException: the broker failed during the block, which itself raised nothing.
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
    """A single broker on the running loop; `running_broker` starts and closes it.

    Args:
        directory: directory of the data, which is kept; a temporary directory when None.
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
        # 0 before the first start; constant afterwards.
        self.port = 0
        # The error that stopped the broker, else None.
        self.failure: BaseException | None = None
        self._node: Node | None = None
        self._runtime: Runtime | None = None
        self._timer: EndingTimer | None = None
        self._ready: asyncio.Future[str] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.bootstrap!r})"

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, the value of bootstrap.servers."""
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether the broker is started and not stopped."""
        return self._node is not None

    async def start(self) -> None:
        """Start the broker on the running loop, with the same directory and port as before.

        Raises:
            ConfigError, StorageError, OSError: see `running_broker`.
        """
        assert self._node is None, "the broker is already running"
        loop = asyncio.get_running_loop()
        self.failure = None
        self._ready = loop.create_future()
        self._timer = EndingTimer(loop)
        self._runtime = msgspec.structs.replace(system_runtime(loop), timer=self._timer)
        try:
            configuration = read_configuration(
                {
                    **BROKER_SETTINGS,
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
        """Stop the broker cleanly, as SIGTERM does; the data remain until `close`."""
        node, runtime, timer = self._node, self._runtime, self._timer
        if runtime is None or timer is None:
            return
        self._node = self._runtime = self._timer = None
        if node is not None:
            stopped = asyncio.Event()
            node.stop(stopped.set)
            await asyncio.wait_for(stopped.wait(), _TIMEOUT_S)
        timer.close()
        # The loop needs some iterations to close connections and listeners.
        for _ in range(3):
            await asyncio.sleep(0)
        close_workers(runtime)
        await asyncio.sleep(0)

    async def restart(self) -> None:
        """Stop the broker if it runs, then start it with the same directory and port."""
        await self.stop()
        await self.start()

    async def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic unless it exists; its partitions have leaders when this returns.

        Raises:
            TopicError: the name or the number of partitions is not allowed.
        """
        assert self._node is not None, "the broker is not running"
        assert self._node.broker is not None, "a single node is a broker"
        assert self._timer is not None
        ended = asyncio.Event()
        failures: list[TopicError] = []

        def on_failed(error: TopicError) -> None:
            failures.append(error)
            ended.set()

        parts = self._node.broker.dependencies
        FirstTopics(parts, self._timer, ended.set, on_failed).create([NewTopic(name, partitions)])
        await ended.wait()
        if failures:
            raise failures[0]

    async def close(self) -> None:
        """Stop the broker; remove the directory if it is temporary."""
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
