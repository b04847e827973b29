"""`barnabas.aio.Producer`: the producer on the running asyncio loop.

The same core as the blocking one; the loop moves it, so that what was sent goes on while the user
does something else. `send` suspends only where the blocking one would wait, and once per full
batch, so that the loop has its turn.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, Unpack

from barnabas.client.aio.session import AsyncSession
from barnabas.client.aio.with_block import AsyncWithBlock
from barnabas.client.config import ClientConfig
from barnabas.client.producer.delivery import DeliveryState
from barnabas.client.producer.interceptors import ProducerRecord
from barnabas.client.producer.producer_face import MS_PER_S, ProducerFace
from barnabas.client.producer.producer_parts import take_parts
from barnabas.client.producer.unfit_record import record_parts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence

    from barnabas.client.errors import ClientError
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.group_offsets import CommittedOffset
    from barnabas.client.metadata_cache import PartitionInfo
    from barnabas.client.producer.accumulator import BatchRecord
    from barnabas.client.producer.producer_batch import ProducerBatch, RecordMetadata
    from barnabas.client.producer.producer_core import SendOptions, Target
    from barnabas.client.retrying import OnDone
    from barnabas.client.topic_partition import K
    from barnabas.client.transactions.calls import Outcome

__all__ = ["AsyncDelivery", "Producer"]


class AsyncDelivery(DeliveryState, eq=False):
    """One record sent by the asyncio producer: `await` it for its `RecordMetadata`."""

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            future: asyncio.Future[None] = self._wait.create_future()

            def wake(_delivery: object) -> None:
                # Whoever waited may have been cancelled meanwhile.
                if not future.done():
                    future.set_result(None)

            self.add_done_callback(wake)
            yield from future
        return self._outcome()

    def result(self) -> RecordMetadata:
        """Where the record lies.

        Raises:
            asyncio.InvalidStateError: it is not settled; `await` it instead.
            ClientError: it was given up.
        """
        self._check_done()
        return self._outcome()

    def exception(self) -> ClientError | None:
        """Why the record was given up, None if it was delivered.

        Raises:
            asyncio.InvalidStateError: neither yet.
        """
        self._check_done()
        return self._error()

    def _check_done(self) -> None:
        if not self.done():
            raise asyncio.InvalidStateError("the record is neither delivered nor given up yet")


class Producer(AsyncWithBlock, ProducerFace):
    """Sends records to topics. Use it in an `async with` block, or call `close()`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of them.
        config: as of the blocking `barnabas.Producer`.

    A record whose delivery failed makes the next `flush()` or `close()` raise, unless it had an
    `on_delivery` or its delivery was awaited or asked.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **config: Any) -> None:
        parts, keys = take_parts(config)
        checked = ClientConfig.parse({"bootstrap.servers": bootstrap_servers, **keys})
        self._session = AsyncSession(checked, "producer")
        super().__init__(self._session, checked, parts)
        self._core.on_progress = self._look
        # Who waits for what; looked at whenever a batch was settled.
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        # How often the loop has to have a turn, in ms.
        self._turn_ms = max(1, checked.linger_ms)
        # A turn of the loop is asked for to send what is queued.
        self._pump_planned = False

    # Life

    async def _give_up(self) -> None:
        await self.close(flush=False)

    async def close(self, timeout: float | None = None, *, flush: bool = True) -> None:
        """Deliver what is held (unless `flush` is off), give up the rest; abort a transaction.

        Raises:
            ClientError: as `flush`.
        """
        if self._closed:
            return
        try:
            if self._core.is_in_transaction:
                await self.abort_transaction(timeout)
            elif flush:
                await self.flush(timeout)
        finally:
            self._closed = True
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
        """Queue a record; waits only for room in the buffer, or for the topic's metadata.

        See the blocking `Producer.send`; `await (await producer.send(...))` waits for the delivery.
        """
        core = self._core
        if core.needs_preparation:
            given = ProducerRecord(topic, value, key, partition)
            (topic, value, key, partition, _, _), options = core.prepare(given, options)
        now = self._clock.wall_ms()
        record = (key, value, partition)
        batch = core.enqueue(topic, record, options, now)
        if batch is None:
            batch = await self._enqueue_when_possible(topic, record, options, now)
        timestamp = options.get("timestamp_ms") if options else None
        delivery = AsyncDelivery(
            batch, batch.count - 1, now if timestamp is None else timestamp, self._session.loop
        )
        if not self._pump_planned and not self._config.linger_ms:
            self._plan_pump()
        if self._is_turn_due(now):
            await self._step(now)
        return delivery

    async def _enqueue_when_possible(
        self,
        topic: str,
        record: tuple[bytes | None, bytes | None, int | None],
        options: SendOptions,
        now: int,
    ) -> ProducerBatch:
        """Wait for the topic's metadata, or for room, as often as it takes."""
        batch = None
        while batch is None:
            if self._core.target(topic, record[2]) is None:
                await self._learned(topic, record[2])
            else:
                await self._room()
            batch = self._core.enqueue(topic, record, options, now)
        return batch

    async def send_batch(
        self, topic: str, records: Iterable[BatchRecord], partition: int | None = None
    ) -> None:
        """Queue many records cheaply: (key, value, headers, timestamp in ms or None) each.

        No record has a callback or a delivery: failures show in `failed` and make `flush` raise.
        """
        core = self._core
        if core.needs_preparation:
            records = core.prepare_all(topic, records)
        for given in records:
            key, value, headers, timestamp = record_parts(topic, given)
            options: SendOptions = {}
            if headers or timestamp is not None:
                options = {"headers": headers, "timestamp_ms": timestamp}
            record = (key, value, partition)
            now = self._clock.wall_ms()
            if core.enqueue(topic, record, options, now) is None:
                await self._enqueue_when_possible(topic, record, options, now)
            if self._is_turn_due(now):
                await self._step(now)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is delivered or given up.

        Args:
            timeout: seconds; None waits as long as delivery.timeout.ms lets records live.

        Raises:
            ClientTimeoutError: not all was settled in time.
            ClientError: records could not be delivered and nobody was told; the first reason.
        """
        self._check_open()
        self._end_flush(timeout, is_empty=await self._until(self._core.flush(), timeout))

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The topic's partitions, by number; waits for metadata if it is not known.

        Raises:
            UnknownTopicError: no such topic.
        """
        self._check_open()
        if self._core.target(topic) is None:
            await self._learned(topic, None)
        return self._core.partitions(topic)

    # Transactions, as in the blocking `Producer`

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Take `transactional_id` over; to be called once, before the first transaction."""
        await self._end_of(self._core.transactions.initialize(), timeout)

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[K, int | CommittedOffset],
        group_metadata: GroupGeneration | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a group's offsets with the transaction, if it is committed (KIP-447)."""
        outcome = self._core.transactions.send_offsets(offsets, group_metadata)
        await self._end_of(outcome, timeout)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Deliver all that was sent, then commit."""
        await self._end_of(self._core.transactions.commit(), timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort: nobody who reads read_committed sees what was sent."""
        await self._end_of(self._core.transactions.abort(), timeout)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """An `async with` block as a transaction: committed at its end, aborted when it raises."""
        self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            if self._core.is_in_transaction:
                await self.abort_transaction()
            raise

    async def _end_of(self, outcome: Outcome, timeout: float | None) -> None:
        self._check_open()
        seconds = self._seconds_of(timeout)
        is_done = await self._until(lambda: outcome.is_done, seconds)
        self._end_call(outcome, seconds, is_done=is_done)

    # Waiting

    def _is_turn_due(self, now: int) -> bool:
        """Whether the loop has to have its turn though nothing is waited for."""
        closed = self._accumulator.closed_count - self._closed_seen
        return closed >= self._core.batches_per_turn or now - self._stepped_ms >= self._turn_ms

    def _plan_pump(self) -> None:
        """Without linger.ms: what is sent before the loop's next turn goes together."""
        self._pump_planned = True

        def pump() -> None:
            self._pump_planned = False
            self._core.sender.pump()

        self._session.runtime.timer.call_soon(pump)

    async def _step(self, now: int) -> None:
        """Send what is ready and let the loop have a turn."""
        self._stepped_ms = now
        self._closed_seen = self._accumulator.closed_count
        self._core.sender.pump()
        await asyncio.sleep(0)

    async def _room(self) -> None:
        self._make_room()
        if not await self._until(self._has_room, self._seconds_of(None)):
            raise self._full()

    async def _learned(self, topic: str, partition: int | None) -> Target:
        """Wait for metadata with the topic's partition; the broker may create the topic now."""
        self._check_open()

        def start(on_done: OnDone[bool]) -> None:
            self._core.learn(topic, partition, on_done)

        await self._session.wait(start, self._learning_ms(), f"metadata of {topic}")
        target = self._core.target(topic, partition)
        assert target is not None, "just learned"
        return target

    async def _until(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until the predicate holds, for up to `timeout` seconds; whether it does."""
        if predicate():
            return True
        entry = (predicate, self._session.loop.create_future())
        self._waiting.append(entry)
        try:
            limit_s = self._settling_ms() / MS_PER_S if timeout is None else timeout
            await asyncio.wait_for(entry[1], limit_s)
        except TimeoutError:
            return predicate()
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
        return True

    def _look(self) -> None:
        """Wake those whose condition holds now."""
        for entry in list(self._waiting):
            predicate, future = entry
            if predicate():
                self._waiting.remove(entry)
                if not future.done():
                    future.set_result(None)
