"""`barnabas.aio.Consumer`: the consumer on the running asyncio loop.

It has the same core and the same method names as `barnabas.Consumer`; methods that wait are
coroutines. There is no thread: a group member sends heartbeats only while the event loop runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from barnabas.client.aio.consumer_calls import AsyncCalls
from barnabas.client.aio.session import AsyncClosedByUser, AsyncSession, AsyncWithBlock
from barnabas.client.consumer.calls.consumer_calls import ConsumerIterator
from barnabas.client.consumer.consumer_base import CLOSE_S, MS_PER_S, ConsumerBase, consumer_config
from barnabas.client.consumer.consumer_core import ConsumerCore
from barnabas.client.consumer.records.consumer_records import ConsumerRecords
from barnabas.client.errors import RecordDeserializationError
from barnabas.client.fetch.offset_lookups import EARLIEST, LATEST
from barnabas.client.topic_partition import TopicPartition, as_partition
from barnabas.client.user_code import UserCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence

    from barnabas.client.connections.metadata_cache import PartitionInfo
    from barnabas.client.fetch.offset_lookups import ListedOffset
    from barnabas.client.fetch.record_decoding import ConsumerRecord
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.group.membership import OnHostDone
    from barnabas.client.topic_partition import K

    Partition = tuple[str, int]
    Partitions = Partition | Iterable[Partition]

__all__ = ["Consumer"]


class Consumer(AsyncWithBlock, ConsumerBase, AsyncClosedByUser):
    """Read records from topics. Use it in an `async with` block, or await `close()`.

    Create it where an event loop runs. The methods of a `RebalanceListener` may be `async def`.

    Args:
        topics: Names of the topics to subscribe to at once.
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of "HOST:PORT" strings.
        config: As for `barnabas.Consumer`.

    Raises:
        ClientError: Any call may raise it or a subclass; the message says what to check.
        ClientConfigError: A config key is unknown or its value is invalid.
    """

    def __init__(
        self, *topics: str, bootstrap_servers: str | Sequence[str] | None = None, **config: Any
    ) -> None:
        checked, parts = consumer_config(bootstrap_servers, config, may_block=False)
        self._session = session = AsyncSession(checked, "consumer", self._on_end_of_loop)
        # Tasks of the user's `async def` callbacks. The event loop holds only weak references to
        # tasks.
        self._tasks: set[asyncio.Task[None]] = set()
        core = ConsumerCore(session.cluster, session.coordinators, parts, self._run_callback)
        iterator = ConsumerIterator(core)
        self._calls = AsyncCalls(session, core, iterator)
        super().__init__(session.cluster, core, iterator, self._calls)
        if topics:
            self.subscribe(topics)
        self._watch(session.lifetime)

    # Closing

    async def _end(self, timeout: float) -> None:
        self._core.stop()
        await self._session.close()

    async def close(self, timeout: float = CLOSE_S) -> None:
        """Commit (if automatic commits are on), leave the group and close all connections.

        Args:
            timeout: Limit in seconds.

        Raises:
            BaseException: A callback of the user raised this exception; the consumer is closed
                anyway.
        """
        await self._calls.close(timeout * MS_PER_S)

    async def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group if the consumer is a member."""
        with self._calls as calls:
            await calls.leave()

    def _end_subscription(self) -> None:
        """Leave at once; await `async def` callbacks of the listener in the background.

        Until they have ended, `subscribe` and `assign` raise; `await unsubscribe()` waits for the
        end.
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
        self._core.host.schedule(lambda: on_done(code.error))

    # Reading

    async def poll(
        self,
        timeout: float = 0.0,
        *,
        max_records: int | None = None,
    ) -> ConsumerRecords:
        """Return the next records, up to max.poll.records; empty if none arrive within `timeout`.

        See `barnabas.Consumer.poll`. A canceled poll does not move any position. Other calls are
        allowed while a poll waits.

        Args:
            timeout: Seconds to wait for records; 0 does not wait.
            max_records: The limit for this poll; None for max.poll.records.

        Returns:
            The records by partition.

        Raises:
            ConcurrentUseError: Another task is inside `poll`.
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
                    try:
                        records = core.take(limit)
                    except RecordDeserializationError as error:
                        await self._session.look_up(error)
                        continue
                    if records is not None:
                        return records
                    if not has_time:
                        return ConsumerRecords({}, {})
                    has_time = await calls.wait(deadline_ms)
            finally:
                calls.end_poll()
                core.metrics.on_poll_end()

    async def _turn(self) -> None:
        """Let the event loop run from time to time, before any records are taken."""
        if self._must_run_loop():
            await asyncio.sleep(0)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Iterate over records one by one, and wait for further records.

        The iteration ends when no record arrives within `consumer_timeout_ms`; by default it never
        ends. The position moves with each record, so a commit during the iteration covers exactly
        the records that were iterated.
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
        """Return the offset of the record that the next poll begins with.

        Args:
            partition: An assigned partition, as (topic, number).
            timeout: Seconds; None for default.api.timeout.ms.

        Raises:
            SubscriptionError: The partition is not assigned.
            ClientTimeoutError: The position was not found within the timeout.
        """
        tp = as_partition(partition)
        with self._calls as calls:
            state = self._core.subscription.partition(tp)
            await calls.until(lambda: state.has_position, timeout, f"position of {tp}")
            return state.offset

    async def seek_to_time(self, timestamp_ms: int, *partitions: Partitions) -> None:
        """Continue at the first record at or after a timestamp; at the end if there is none.

        Args:
            timestamp_ms: Timestamp in ms since the epoch.
            partitions: (topic, number) pairs; all assigned partitions if omitted.

        Raises:
            SubscriptionError: A partition is not assigned.
            ValueError: The timestamp is negative.
        """
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
        """Commit offsets and wait for the result; see `barnabas.Consumer.commit`.

        Args:
            offsets: For each partition the offset of the next record to read; None commits all
                positions.
            timeout: Seconds; None for default.api.timeout.ms.
        """
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
        """Return the group's committed offsets of these partitions; None where there is none.

        Args:
            partitions: (topic, number) pairs.
            timeout: Seconds; None for default.api.timeout.ms.

        Raises:
            InvalidGroupIdError: `group.id` is missing.
        """
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
        """Return the first offset of each partition.

        Args:
            partitions: (topic, number) pairs.
            timeout: Seconds; None for default.api.timeout.ms.
        """
        with self._calls as calls:
            return await calls.result(
                self._lookups.ends(partitions, EARLIEST, timeout), "offsets", timeout
            )

    async def end_offsets(
        self,
        partitions: Iterable[Partition],
        timeout: float | None = None,
    ) -> dict[TopicPartition, int]:
        """Return the end offset of each partition: the offset after the last visible record.

        With isolation.level=read_committed this is the last stable offset.

        Args:
            partitions: (topic, number) pairs.
            timeout: Seconds; None for default.api.timeout.ms.
        """
        with self._calls as calls:
            return await calls.result(
                self._lookups.ends(partitions, LATEST, timeout), "offsets", timeout
            )

    async def offsets_for_times(
        self,
        timestamps: Mapping[K, int],
        timeout: float | None = None,
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Return for each partition the first record at or after a timestamp, or None.

        Args:
            timestamps: Timestamps in ms since the epoch, by partition.
            timeout: Seconds; None for default.api.timeout.ms.

        Returns:
            Offset, timestamp and leader epoch by partition; None where no record is that recent.

        Raises:
            ValueError: A timestamp is negative.
        """
        with self._calls as calls:
            return await calls.result(self._lookups.times(timestamps, timeout), "offsets", timeout)

    async def partitions_for(
        self,
        topic: str,
        timeout: float | None = None,
    ) -> list[PartitionInfo]:
        """Return the partitions of a topic, with leaders and replicas.

        Args:
            topic: Name of the topic.
            timeout: Seconds; None for default.api.timeout.ms.

        Raises:
            UnknownTopicError: The topic does not exist.
        """
        with self._calls as calls:
            return await calls.result(
                self._lookups.partitions(topic, timeout), f"partitions of {topic}", timeout
            )

    async def list_topics(
        self,
        timeout: float | None = None,
    ) -> dict[str, list[PartitionInfo]]:
        """Return all topics that this principal may describe, with their partitions."""
        with self._calls as calls:
            return await calls.result(self._lookups.topics(timeout), "list of topics", timeout)
