"""`barnabas.aio.ShareConsumer`: the share consumer on the running asyncio loop (KIP-932).

It has the same core and the same method names as `barnabas.ShareConsumer`; methods that wait are
coroutines. There is no thread: heartbeats are sent only while the event loop runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from barnabas.client.aio.session import AsyncClosedByUser, AsyncSession, AsyncWithBlock
from barnabas.client.consumer.errors import ConcurrentUseError
from barnabas.client.errors import RecordDeserializationError
from barnabas.client.share.acquired_records import ShareRecords
from barnabas.client.share.share_consumer_base import (
    CLOSE_S,
    MS_PER_S,
    ShareConsumerBase,
    share_consumer_config,
)
from barnabas.client.share.share_consumer_core import ShareConsumerCore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from barnabas.client.errors import ClientError
    from barnabas.client.share.acquired_records import ShareRecord
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["ShareConsumer"]


class ShareConsumer(AsyncWithBlock, ShareConsumerBase, AsyncClosedByUser):
    """Acquire records of topics together with other members of a share group.

    Use it in an `async with` block, or await `close()`. Create it where an event loop runs.

    Args:
        topics: Names of the topics to subscribe to at once.
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of "HOST:PORT" strings.
        config: As for `barnabas.ShareConsumer`.

    Raises:
        ClientError: Any call may raise it or a subclass; the message says what to check.
        ClientConfigError: A config key is unknown or not supported, or its value is invalid.
    """

    def __init__(
        self, *topics: str, bootstrap_servers: str | Sequence[str] | None = None, **config: Any
    ) -> None:
        checked, deserializing = share_consumer_config(bootstrap_servers, config, may_block=False)
        self._session = session = AsyncSession(checked, "share consumer", self._on_end_of_loop)
        core = ShareConsumerCore(session.cluster, session.coordinators, deserializing)
        super().__init__(core, session.runtime.clock)
        # Set at each event; every waiting call then checks its condition.
        self._event_occurred = asyncio.Event()
        # Whether a task is inside `poll`.
        self._is_polling = False
        core.on_wake = self._event_occurred.set
        if topics:
            core.subscribe(self._topic_names(topics))
        self._watch(session.lifetime)

    async def _end(self, timeout: float) -> None:
        self._core.stop()
        await self._session.close()

    def _enter(self) -> None:
        self._session.check_usable()

    def _leave(self) -> None:
        """Do nothing: calls may overlap."""

    def _interrupt(self) -> None:
        self._session.loop.call_soon_threadsafe(self._event_occurred.set)

    async def _wait_until(self, is_over: Callable[[], bool], timeout_ms: float) -> None:
        """Wait until `is_over`, and at most for `timeout_ms`; let the event loop run once."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        await asyncio.sleep(0)
        while not is_over():
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return
            self._event_occurred.clear()
            alarm = self._session.loop.call_later(left_ms / MS_PER_S, self._event_occurred.set)
            try:
                await self._event_occurred.wait()
            finally:
                alarm.cancel()

    # Subscription

    async def subscribe(self, topics: Iterable[str] | str) -> None:
        """Subscribe to topics; replace earlier topics. The next poll joins the group.

        Args:
            topics: One name or several. An empty collection means `unsubscribe`.

        Raises:
            SubscriptionError: The topics are None, a pattern, or a name is blank.
        """
        names = self._topic_names(topics)
        with self._call() as core:
            if names:
                core.subscribe(names)
            else:
                await self.unsubscribe()

    async def unsubscribe(self) -> None:
        """Leave the group: send pending acknowledgements, and release all other records."""
        with self._call():
            await self._end_membership(self.config.default_api_timeout_ms)

    async def _end_membership(self, timeout_ms: float) -> None:
        ended: list[bool] = []
        self._core.leave(lambda: ended.append(True))
        await self._wait_until(lambda: bool(ended), timeout_ms)
        if not ended:
            self._core.abandon()

    # Reading

    async def poll(self, timeout: float = 0.0) -> ShareRecords:
        """Return acquired records; empty if none arrive within `timeout`.

        See `barnabas.ShareConsumer.poll`. Other calls are allowed while a poll waits.

        Args:
            timeout: Seconds to wait for records; 0 does not wait.

        Returns:
            The records by partition: about max.poll.records, but always whole batches.

        Raises:
            ConcurrentUseError: Another task is inside `poll`.
        """
        with self._call() as core:
            if self._is_polling:
                raise ConcurrentUseError("another task is in a poll of this consumer")
            self._is_polling = True
            try:
                core.begin_poll()
                deadline_ms = self._clock.monotonic_ms() + timeout * MS_PER_S
                has_time = True
                while True:
                    self._session.check_usable()
                    core.round()
                    try:
                        records = core.take(self.config.max_poll_records)
                    except RecordDeserializationError as error:
                        # The record was released, so it is delivered again after the lookup.
                        await self._session.look_up(error)
                        continue
                    if records is not None:
                        return records
                    if not has_time:
                        return ShareRecords({})
                    await self._wait_until(
                        lambda: core.is_awake or core.is_wakeup_wanted, self._wait_ms(deadline_ms)
                    )
                    has_time = self._clock.monotonic_ms() < deadline_ms
            finally:
                self._is_polling = False
                core.end_poll()

    async def __aiter__(self) -> AsyncIterator[ShareRecord]:
        """Iterate over records one by one, and wait for further records.

        See `barnabas.ShareConsumer.__iter__`.
        """
        timeout, may_end = self._iteration_s(), self.config.consumer_timeout_ms >= 0
        while True:
            record = self._core.next_row()
            if record is not None:
                yield record
                continue
            records = await self.poll(timeout)
            if not records and may_end:
                return
            self._core.begin_rows(records)

    # Acknowledgements

    async def commit_sync(
        self,
        timeout: float | None = None,
    ) -> dict[TopicPartition, ClientError | None]:
        """Send the acknowledgements and wait for the results.

        See `barnabas.ShareConsumer.commit_sync`.

        Args:
            timeout: Seconds; None for default.api.timeout.ms.

        Returns:
            For each partition with acknowledgements its error, or None if they succeeded.

        Raises:
            WakeupError: `wakeup` was called; the results go to the callback.
        """
        with self._call() as core:
            commit = core.commit()
            timeout_ms = self._timeout_ms(timeout)
            await self._wait_until(lambda: commit.is_done or core.is_wakeup_wanted, timeout_ms)
            if not commit.is_done:
                core.check_wakeup()
            core.run_callbacks()
            return commit.results(timeout_ms)

    # Client instance, closing

    async def client_instance_id(
        self,
        timeout: float | None = None,
    ) -> str:
        """Return the id that the brokers use for this client's telemetry (KIP-714).

        Args:
            timeout: Seconds; None for default.api.timeout.ms.

        Raises:
            UnsupportedVersionError: The brokers do not collect client telemetry.
            ClientTimeoutError: No broker responded in time.
        """
        with self._call() as core:
            return await self._session.wait(
                core.client_instance_id, self._timeout_ms(timeout), "client instance id"
            )

    async def close(self, timeout: float = CLOSE_S) -> None:
        """Send pending acknowledgements, release all other records, leave the group and close.

        See `barnabas.ShareConsumer.close`.

        Args:
            timeout: Limit in seconds.
        """
        session = self._session
        if session.lifetime.is_closed or session.lifetime.is_forked:
            await session.close()
            return
        with self._call() as core:
            try:
                await self._end_membership(timeout * MS_PER_S)
                core.run_callbacks()
            finally:
                core.stop()
                await session.close()
