"""`barnabas.aio.Consumer`: the consumer on the running asyncio loop.

It has the same core and the same method names as `barnabas.Consumer`; methods that wait are
coroutines. There is no thread: a group member sends heartbeats only while the event loop runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.aio.session import AsyncClosedByUser, AsyncSession, AsyncWithBlock
from barnabas.client.consumer import consumer_plans
from barnabas.client.consumer.consumer_base import CLOSE_S, MS_PER_S, ConsumerBase, consumer_config
from barnabas.client.consumer.consumer_calls import ConsumerCalls, ConsumerIterator
from barnabas.client.consumer.consumer_core import ConsumerCore
from barnabas.client.consumer.consumer_records import ConsumerRecords
from barnabas.client.consumer.errors import ConcurrentUseError
from barnabas.client.errors import RecordDeserializationError
from barnabas.client.session.plans import AwaitsPlans, run_plan_async
from barnabas.client.user_code import UserCode

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Callable,
        Collection,
        Coroutine,
        Iterable,
        Sequence,
    )

    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.client.group.membership import OnHostDone
    from barnabas.client.session.plans import WaitingPlan

    Partition = tuple[str, int]
    Partitions = Partition | Iterable[Partition]

__all__ = ["Consumer"]

T = TypeVar("T")


class AsyncCalls(ConsumerCalls):
    """Entry, waiting and closing of the asyncio consumer. All calls except polls may overlap."""

    __slots__ = ("_is_polling", "_session")
    may_overlap = True

    def __init__(
        self, session: AsyncSession, core: ConsumerCore, iterator: ConsumerIterator
    ) -> None:
        super().__init__(session.cluster, core, iterator)
        self._session = session
        # Whether a task is inside `poll`; set by `begin_poll`, cleared by `end_poll`.
        self._is_polling = False
        core.on_wake = session.conditions.check

    def _begin(self) -> None:
        self._session.check_usable()

    def wakeup(self) -> None:
        """Make waiting calls check their conditions again. Safe from any thread."""
        self._session.conditions.check_soon()

    def begin_poll(self) -> None:
        """Mark a poll as active until `end_poll`.

        Raises:
            ConcurrentUseError: Another task is inside `poll`.
        """
        if self._is_polling:
            raise ConcurrentUseError("another task is in a poll of this consumer")
        self._is_polling = True

    def end_poll(self) -> None:
        """Mark the poll as ended, so that other tasks may poll."""
        self._is_polling = False

    async def wait(self, deadline_ms: float, begun: int) -> bool:
        """Wait for an event, see `event_before`; return whether there is time left."""
        await self._session.conditions.until(self.event_before(deadline_ms, begun))
        return self.clock.monotonic_ms() < deadline_ms

    async def run(self, plan: WaitingPlan[T]) -> T:
        """Run a plan to its end and return its result."""
        return await run_plan_async(plan, self._session.conditions.until)

    def leave_now(self, tasks: Collection[object]) -> Coroutine[Any, Any, None] | None:
        """Give up all partitions without waiting for the coordinator's response, which is not used.

        Args:
            tasks: Running `async def` callbacks of the user.

        Returns:
            A coroutine to await if callbacks of the user are still running; otherwise None.

        Raises:
            BaseException: A callback of the user raised this exception.
        """
        core = self.core
        if core.host.is_leaving:
            return None
        core.unsubscribe("the consumer unsubscribed", lambda: None)
        if core.host.is_leaving and tasks:
            return self.run(consumer_plans.finish_leaving(self))
        core.end_subscription()
        self.raise_callback_error()
        return None

    async def close(self, timeout_ms: float) -> None:
        """Close the consumer; do nothing if it is closed or closing.

        Raises:
            BaseException: A callback of the user raised this exception.
        """
        if self._session.lifetime.is_closed or self._session.lifetime.is_forked or self.closings:
            return
        self.closings += 1
        self._session.conditions.check()
        try:
            await self.run(self.close_core(timeout_ms))
        finally:
            await self._session.close()
        self.raise_callback_error()


class Consumer(AsyncWithBlock, ConsumerBase, AwaitsPlans, AsyncClosedByUser):
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
        super().__init__(core, iterator, self._calls)
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

    async def _run_plan(self, plan: Callable[..., WaitingPlan[T]], *args: Any, **kwargs: Any) -> T:
        with self._calls as calls:
            return await calls.run(plan(calls, *args, **kwargs))

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
                    has_time = await calls.wait(deadline_ms, begun)
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
