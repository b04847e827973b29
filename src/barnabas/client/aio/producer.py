"""`barnabas.aio.Producer`: the producer on the running asyncio loop.

It has the same core as the blocking producer. The event loop sends the records while the user's
code does other work. `send` suspends where the blocking producer would wait. It also suspends once
per full batch, so that the event loop can run.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from barnabas.client.aio.session import AsyncClosedByUser, AsyncSession, AsyncWithBlock
from barnabas.client.config import ClientConfig, keys_with_servers
from barnabas.client.producer import producer_plans
from barnabas.client.producer.partitioner import check_partitioner
from barnabas.client.producer.producer_batch import DeliveryState
from barnabas.client.producer.producer_plans import ProducerBase
from barnabas.client.producer.user_objects import ProducerRecord, record_parts, take_parts
from barnabas.client.session.plans import AwaitsPlans, run_plan_async
from barnabas.serializers.lookups import SchemaLookup

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Callable,
        Generator,
        Iterable,
        Sequence,
    )

    from barnabas.client.errors import ClientError
    from barnabas.client.producer.accumulator import BatchRecord
    from barnabas.client.producer.producer_batch import RecordMetadata
    from barnabas.client.producer.producer_core import SendOptions
    from barnabas.client.session.plans import WaitingPlan

__all__ = ["AsyncDelivery", "Producer"]

T = TypeVar("T")


class AsyncDelivery(DeliveryState, eq=False):
    """One record sent by the asyncio producer: `await` it for its `RecordMetadata`."""

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            future: asyncio.Future[None] = self._wait.create_future()

            def wake(_delivery: object) -> None:
                # The waiting task may have been canceled meanwhile.
                if not future.done():
                    future.set_result(None)

            self.add_done_callback(wake)
            yield from future
        return self._outcome()

    def result(self) -> RecordMetadata:
        """Return topic, partition, offset and timestamp of the delivered record.

        Raises:
            asyncio.InvalidStateError: The delivery is pending; `await` it instead.
            ClientError: The delivery failed with this error.
        """
        self._check_done()
        return self._outcome()

    def exception(self) -> ClientError | None:
        """Return why the delivery failed; None if the record was delivered.

        Raises:
            asyncio.InvalidStateError: The delivery is pending.
        """
        self._check_done()
        return self._error()

    def _check_done(self) -> None:
        if not self.done():
            raise asyncio.InvalidStateError("the delivery is pending")


class Producer(AsyncWithBlock, ProducerBase, AwaitsPlans, AsyncClosedByUser):
    """Send records to topics. Use it in an `async with` block, or await `close()`.

    A failed delivery makes the next `flush()` or `close()` raise. This does not apply to records
    with an `on_delivery` callback, and to deliveries that were awaited or whose result was read.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of "HOST:PORT" strings.
        config: As for the blocking `barnabas.Producer`.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str] | None = None, **config: Any) -> None:
        parts, keys = take_parts(config)
        checked = check_partitioner(ClientConfig.parse(keys_with_servers(bootstrap_servers, keys)))
        self._session = AsyncSession(checked, "producer", self._on_end_of_loop)
        super().__init__(self._session, checked, parts)
        self._core.on_progress = self._check_conditions
        # Upper limit of the time (ms) between two turns of the event loop while records are sent.
        self._turn_ms = max(1, checked.linger_ms)
        # Whether a turn of the event loop is scheduled that sends the queued records.
        self._pump_planned = False
        self._watch(self._session.lifetime)

    # Closing

    async def _end(self, timeout: float) -> None:
        await self.close(timeout)

    async def _give_up(self) -> None:
        await self.close(flush=False)

    async def close(self, timeout: float | None = None, *, flush: bool = True) -> None:
        """Deliver the queued records, unless `flush` is False; abort an open transaction instead.

        Args:
            timeout: Seconds; see `flush`.
            flush: Whether to deliver the queued records; otherwise they fail.

        Raises:
            ClientError: As for `flush`.
        """
        if self._core.is_closed:
            return
        try:
            if self._core.is_in_transaction:
                await self.abort_transaction(timeout)
            elif flush:
                await self.flush(timeout)
        finally:
            self._core.close()
            await self._session.close()

    # Sending

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        **options: Unpack[SendOptions],
    ) -> AsyncDelivery:
        """Queue a record; wait only for buffer space or the topic's metadata.

        See the blocking `Producer.send` for arguments and errors. `await (await
        producer.send(...))` waits for the delivery.

        Returns:
            The delivery; `await` it for the `RecordMetadata`.
        """
        core = self._core
        if core.needs_preparation:
            given = ProducerRecord(topic, value, key, partition)
            (topic, value, key, partition, _, _), options = await self._prepare(given, options)
        now = self._wall_ms()
        batch = core.enqueue(topic, key, value, partition, options, now)
        if batch is None:
            record = (key, value, partition)
            plan = producer_plans.enqueue(core, topic, record, options, now)
            batch = await self._run(plan)
        timestamp = options.get("timestamp_ms") if options else None
        delivery = AsyncDelivery(
            batch, batch.count - 1, now if timestamp is None else timestamp, self._session.loop
        )
        if not self._pump_planned and not self._core.config.linger_ms:
            self._plan_pump()
        if now >= self._step_due_ms or self._is_turn_full():
            await self._step(now)
        return delivery

    async def send_batch(
        self, topic: str, records: Iterable[BatchRecord], partition: int | None = None
    ) -> None:
        """Queue many records at low cost.

        The records have no callback and no delivery. Failures are counted in `failed` and make
        `flush` raise.

        Args:
            topic: Name of the topic.
            records: (key, value, headers, timestamp in ms or None) tuples.
            partition: Number of the partition; None lets the partitioner choose.

        Raises:
            UnfitRecordError: An item is not such a tuple, or a part has the wrong type.
        """
        core = self._core
        for given in records:
            key, value, headers, timestamp = record_parts(topic, given)
            options: SendOptions = {}
            if headers or timestamp is not None:
                options = {"headers": headers, "timestamp_ms": timestamp}
            if core.needs_preparation:
                unprepared = ProducerRecord(topic, value, key, None, headers, timestamp)
                made, _ = await self._prepare(unprepared, options)
                key, value, headers, timestamp = (
                    *(made.key, made.value),
                    *(made.headers, made.timestamp_ms),
                )
                options = {"headers": headers, "timestamp_ms": timestamp}
            now = self._wall_ms()
            if core.enqueue(topic, key, value, partition, options, now) is None:
                record = (key, value, partition)
                await self._run(producer_plans.enqueue(core, topic, record, options, now))
            if now >= self._step_due_ms or self._is_turn_full():
                await self._step(now)

    async def _prepare(
        self, record: ProducerRecord, options: SendOptions
    ) -> tuple[ProducerRecord, SendOptions]:
        """Pass a record through interceptors and serializers; look schemas up in a thread."""
        core = self._core
        record, options = core.intercept(record, options)
        while True:
            try:
                return core.serialize(record, may_block=False), options
            except SchemaLookup as lookup:
                await self._session.loop.run_in_executor(None, lookup.run)

    # Transactions

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Return an `async with` block that commits at its end and aborts on an exception."""
        self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            if self._core.is_in_transaction:
                await self.abort_transaction()
            raise

    # Waiting

    def _check_conditions(self) -> None:
        """End the waits whose conditions hold.

        Through this method the core keeps the producer alive while it has undelivered records.
        """
        self._session.conditions.check()

    def _plan_pump(self) -> None:
        """Schedule sending for linger.ms=0, in the next turn of the event loop.

        Records sent before that turn share a batch.
        """
        self._pump_planned = True

        def pump() -> None:
            self._pump_planned = False
            self._core.sender.pump()

        self._session.runtime.timer.call_soon(pump)

    async def _step(self, now: int) -> None:
        """Send ready batches and let the event loop run once."""
        self._step_due_ms = now + self._turn_ms
        self._closed_seen = self._accumulator.closed_count
        self._core.sender.pump()
        await asyncio.sleep(0)

    async def _run_plan(self, plan: Callable[..., WaitingPlan[T]], *args: Any, **kwargs: Any) -> T:
        self._core.check_open()
        return await self._run(plan(self._core, *args, **kwargs))

    async def _run(self, plan: WaitingPlan[T]) -> T:
        """Run a plan to its end and return its result."""
        return await run_plan_async(plan, self._session.conditions.until)
