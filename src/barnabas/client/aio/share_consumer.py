"""`barnabas.aio.ShareConsumer`: the share consumer on the running asyncio loop (KIP-932).

It has the same core and the same method names as `barnabas.ShareConsumer`; methods that wait are
coroutines. There is no thread: heartbeats are sent only while the event loop runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.aio.session import AsyncClosedByUser, AsyncSession, AsyncWithBlock
from barnabas.client.consumer.errors import ConcurrentUseError
from barnabas.client.errors import RecordDeserializationError
from barnabas.client.session.plans import AwaitsPlans, run_plan_async
from barnabas.client.share import share_consumer_plans
from barnabas.client.share.acquired_records import ShareRecords
from barnabas.client.share.share_consumer_base import (
    CLOSE_S,
    MS_PER_S,
    ShareConsumerBase,
    share_consumer_config,
)
from barnabas.client.share.share_consumer_core import ShareConsumerCore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from barnabas.client.session.plans import WaitingPlan
    from barnabas.client.share.acquired_records import ShareRecord

__all__ = ["ShareConsumer"]

T = TypeVar("T")


class ShareConsumer(AsyncWithBlock, ShareConsumerBase, AwaitsPlans, AsyncClosedByUser):
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
        # Whether a task is inside `poll`.
        self._is_polling = False
        core.on_wake = session.conditions.check
        if topics:
            core.subscribe(share_consumer_plans.topic_names(topics))
        self._watch(session.lifetime)

    async def _end(self, timeout: float) -> None:
        self._core.stop()
        await self._session.close()

    def _enter(self) -> None:
        self._session.check_usable()

    def _leave(self) -> None:
        """Do nothing: calls may overlap."""

    def _interrupt(self) -> None:
        self._session.conditions.check_soon()

    async def _run_plan(self, plan: Callable[..., WaitingPlan[T]], *args: Any, **kwargs: Any) -> T:
        with self._call() as core:
            conditions = self._session.conditions
            return await run_plan_async(plan(core, *args, **kwargs), conditions.until)

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
                    await self._session.conditions.until(self._event_before(deadline_ms))
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

    # Closing

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
            plan = share_consumer_plans.close(core, timeout * MS_PER_S)
            try:
                await run_plan_async(plan, session.conditions.until)
            finally:
                await session.close()
