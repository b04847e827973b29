"""`barnabas.aio.Consumer`: the consumer over the running asyncio loop.

The same core and the same names as `barnabas.Consumer`; what waits is to be awaited. There is no
thread: a member of a group is heard of as long as the loop runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from barnabas.client.aio.consumer_calls import AsyncCalls
from barnabas.client.aio.session import AsyncSession
from barnabas.client.aio.with_block import AsyncWithBlock
from barnabas.client.consumer.consumer_core import ConsumerCore
from barnabas.client.consumer.consumer_face import CLOSE_S, MS_PER_S, ConsumerFace, consumer_config
from barnabas.client.consumer.consumer_iterator import ConsumerIterator
from barnabas.client.consumer.consumer_records import ConsumerRecords
from barnabas.client.group.user_code import UserCode
from barnabas.client.list_offsets import EARLIEST, LATEST
from barnabas.client.topic_partition import TopicPartition, as_partition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence

    from barnabas.client.group.membership import OnHostDone
    from barnabas.client.group_offsets import CommittedOffset
    from barnabas.client.list_offsets import ListedOffset
    from barnabas.client.metadata_cache import PartitionInfo
    from barnabas.client.record_decoding import ConsumerRecord
    from barnabas.client.topic_partition import K

    Partition = tuple[str, int]
    Partitions = Partition | Iterable[Partition]

__all__ = ["Consumer"]


class Consumer(AsyncWithBlock, ConsumerFace):
    """Reads records. Use it in an `async with` block, or await `close()`.

    Args:
        topics: names to subscribe to at once.
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of them.
        config: as for `barnabas.Consumer`.

    To be made where a loop runs. The methods of a `RebalanceListener` may be `async def`.
    """

    def __init__(self, *topics: str, bootstrap_servers: str | Sequence[str], **config: Any) -> None:
        checked, parts = consumer_config(bootstrap_servers, config)
        self._session = session = AsyncSession(checked, "consumer")
        # Callbacks of the user that are being awaited: the loop itself keeps no hold of them.
        self._tasks: set[asyncio.Task[None]] = set()
        core = ConsumerCore(session.cluster, session.coordinators, parts, self._run_callback)
        iterator = ConsumerIterator(core)
        self._calls = AsyncCalls(session, core, iterator)
        super().__init__(session.cluster, core, iterator, self._calls)
        if topics:
            self.subscribe(topics)

    # Life

    async def close(self, timeout: float = CLOSE_S) -> None:
        """Commit (if that is automatic), leave the group, close all connections.

        Raises:
            BaseException: what a callback of the user raised; it is closed all the same.
        """
        await self._calls.close(timeout * MS_PER_S)

    async def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group if there is one."""
        with self._calls as calls:
            await calls.leave()

    def _end_subscription(self) -> None:
        """Leave at once; what an `async def` listener has to say is awaited in the background.

        Until it has ended, `subscribe` and `assign` raise; `await unsubscribe()` waits for it.
        """
        rest = self._calls.leave_now(self._tasks)
        if rest is not None:
            self._keep(self._session.loop.create_task(rest))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _run_callback(self, call: Callable[[], object], on_done: OnHostDone) -> None:
        result: object = None
        with UserCode() as code:
            result = call()
        if code.error is not None or not asyncio.iscoroutine(result):
            on_done(code.error)
            return
        self._keep(self._session.loop.create_task(self._finish_callback(result, on_done)))

    async def _finish_callback(
        self, callback: Coroutine[Any, Any, object], on_done: OnHostDone
    ) -> None:
        with UserCode() as code:
            await callback
        self._core.host.go_on_with(lambda: on_done(code.error))

    # Reading

    async def poll(
        self,
        timeout: float = 0.0,
        *,
        max_records: int | None = None,
    ) -> ConsumerRecords:
        """The next records; see `barnabas.Consumer.poll`.

        A poll that is cancelled has moved nothing. While one waits other calls may be made.

        Raises:
            ConcurrentUseError: another task polls.
        """
        limit = self._limit if max_records is None else max_records
        with self._calls as calls:
            calls.begin_poll()
            core = self._core
            try:
                core.begin_poll()
                deadline_ms = self._clock.monotonic_ms() + timeout * MS_PER_S
                await self._turn()
                has_time, begun = True, calls.closings
                while True:
                    calls.check_open(begun)
                    core.round()
                    records = core.take(limit)
                    if records is not None:
                        return records
                    if not has_time:
                        return ConsumerRecords({}, {})
                    has_time = await calls.wait(deadline_ms)
            finally:
                calls.end_poll()
                core.metrics.on_poll_end()

    async def _turn(self) -> None:
        """Let the loop have a turn now and then, before anything is taken."""
        if self._takes_turn():
            await asyncio.sleep(0)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Record by record; waits for them, for ever unless `consumer_timeout_ms` is set.

        The position moves record by record: what is committed in between is what was iterated.
        """
        timeout, may_end = self._iteration_s(), self.config.consumer_timeout_ms >= 0
        iterator = self._iterator
        while True:
            for record in iterator.rows:
                yield record
            iterator.check()
            records = await self.poll(timeout)
            if not records and may_end:
                return
            iterator.begin(records)

    # Positions

    async def position(
        self,
        partition: Partition,
        timeout: float | None = None,
    ) -> int:
        """Offset of the record that the next poll begins with.

        Raises:
            SubscriptionError: the partition is not assigned.
            ClientTimeoutError: it was not to be found out in time.
        """
        tp = as_partition(partition)
        with self._calls as calls:
            position = self._core.subscription.position(tp)
            await calls.until(lambda: position.has_position, timeout, f"position of {tp}")
            return position.offset

    async def seek_to_time(self, timestamp_ms: int, *partitions: Partitions) -> None:
        """Go on at the first record as late as that; at the end where there is none."""
        with self._calls as calls:
            await calls.result(
                self._lookups.seek_to_time(timestamp_ms, partitions), "seek to a time"
            )

    # Commits

    async def commit(
        self,
        offsets: Mapping[K, int | CommittedOffset] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Commit; see `barnabas.Consumer.commit`."""
        with self._calls as calls:
            try:
                await calls.result(self._lookups.commit(offsets, timeout), "commit", timeout)
            finally:
                self._core.commits.run_callbacks()

    async def committed(
        self,
        partitions: Iterable[Partition],
        timeout: float | None = None,
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed for these partitions, None where it has nothing."""
        with self._calls as calls:
            return await calls.result(
                self._lookups.committed(partitions, timeout), "committed offsets", timeout
            )

    # Offsets and topics

    async def beginning_offsets(
        self,
        partitions: Iterable[Partition],
        timeout: float | None = None,
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        with self._calls as calls:
            return await calls.result(
                self._lookups.ends(partitions, EARLIEST, timeout), "offsets", timeout
            )

    async def end_offsets(
        self,
        partitions: Iterable[Partition],
        timeout: float | None = None,
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record of each, with read_committed behind the last stable."""
        with self._calls as calls:
            return await calls.result(
                self._lookups.ends(partitions, LATEST, timeout), "offsets", timeout
            )

    async def offsets_for_times(
        self,
        timestamps: Mapping[K, int],
        timeout: float | None = None,
    ) -> dict[TopicPartition, ListedOffset | None]:
        """For each partition the first record as late as a time in ms, None where there is none."""
        with self._calls as calls:
            return await calls.result(self._lookups.times(timestamps, timeout), "offsets", timeout)

    async def partitions_for(
        self,
        topic: str,
        timeout: float | None = None,
    ) -> list[PartitionInfo]:
        """The partitions of a topic, with leaders and replicas.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        with self._calls as calls:
            return await calls.result(
                self._lookups.partitions(topic, timeout), f"partitions of {topic}", timeout
            )

    async def list_topics(
        self,
        timeout: float | None = None,
    ) -> dict[str, list[PartitionInfo]]:
        """All topics that this user may see, with their partitions."""
        with self._calls as calls:
            return await calls.result(self._lookups.topics(timeout), "list of topics", timeout)
