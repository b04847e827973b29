"""The blocking producers: `barnabas.Producer` with its own connections, and its base class.

A `SharedProducer` uses the connections of a client. A producer has no thread. Records make progress
while `send`, `poll`, `flush` or a delivery's `result` runs. End with `flush()` or `close()`, or use
a `with` block.

Threads may share a producer: their calls run one after the other. A callback may call `send`, but
no method that has to wait.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from barnabas.client.config import ClientConfig, keys_with_servers
from barnabas.client.errors import ClientError
from barnabas.client.producer import producer_plans
from barnabas.client.producer.partitioner import check_partitioner
from barnabas.client.producer.producer_batch import Delivery
from barnabas.client.producer.producer_plans import ProducerBase
from barnabas.client.producer.user_objects import ProducerRecord, raise_unfit, take_parts
from barnabas.client.session.lifetime import ClosedByUser, WithBlock
from barnabas.client.session.plans import RunsPlans, run_plan
from barnabas.client.session.session import Session
from barnabas.runtime.process import reentrant_lock, watch_forks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from barnabas.client.producer.accumulator import BatchRecord
    from barnabas.client.producer.producer_core import SendOptions, Target
    from barnabas.client.producer.user_objects import ProducerParts
    from barnabas.client.session.plans import Until, WaitingPlan
    from barnabas.client.topic_partition import TopicPartition


__all__ = ["Producer", "SharedProducer"]

# Number of records that `send_batch` groups by partition at a time. The garbage collector runs each
# time the number of tracked objects, such as these records, has grown by 700.
_SORTED_AT_ONCE = 500
_MS_PER_S = 1000
T = TypeVar("T")


class SharedProducer(ProducerBase, WithBlock, RunsPlans):
    """Sends records over the connections of a client; created by `Client.producer()`.

    A failed record makes the next `flush()` or `close()` raise, unless the record has an
    `on_delivery` callback or the caller read the outcome from its delivery.
    """

    def __init__(
        self,
        session: Session,
        config: ClientConfig,
        on_closed: Callable[[Any], None],
        parts: ProducerParts,
    ) -> None:
        """Use the session's connections; call `on_closed(producer)` when the producer is closed."""
        super().__init__(session, config, parts)
        self._session = session
        self._stepper = session.stepper
        self._on_closed = on_closed
        self._enqueue = self._core.enqueue
        self._wait = self._wait_for_delivery
        self._linger_ms = config.linger_ms
        self._needs_preparation = self._core.needs_preparation
        # Held during each call. Callbacks run on the thread that holds it, and may call `send`.
        self._lock = reentrant_lock()
        watch_forks(self)

    def on_forked(self) -> None:
        """Replace the lock, because a thread that held it does not run in the child process."""
        self._lock = reentrant_lock()

    # Closing

    def _give_up(self) -> None:
        self.close(flush=False)

    def close(self, timeout: float | None = None, *, flush: bool = True) -> None:
        """Flush pending records and close the producer; does nothing if it is closed.

        An open transaction is aborted instead.

        Args:
            timeout: limit of the flush or the abort in seconds; None uses their default.
            flush: if False, pending records fail instead.

        Raises:
            ClientTimeoutError: the flush or the abort did not end in time. The producer is closed.
            ClientError: as of `flush`. The producer is closed. Or a callback called `close`.
        """
        with self._lock:
            self._close(timeout, flush=flush)

    def _close(self, timeout: float | None, *, flush: bool) -> None:
        if self._core.is_closed:
            return
        if self._session.lifetime.is_forked:
            # After a fork, pending records belong to the parent process.
            self._core.is_closed = True
            return
        self._check_may_wait()
        try:
            if self._core.is_in_transaction:
                self.abort_transaction(timeout)
            elif flush:
                self.flush(timeout)
        finally:
            self._core.close()
            self._on_closed(self)

    # Sending

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        **options: Unpack[SendOptions],
    ) -> Delivery:
        """Queue a record; waits only for room in the buffer or for the topic's metadata.

        Callbacks of earlier records can run during the call.

        Args:
            topic: the topic's name; the broker creates the topic if auto-creation is enabled.
            value: bytes, None for a tombstone; any value that the `value_serializer` accepts.
            key: bytes or None. Records with the same key go to the same partition, the one that
                Kafka's Java client chooses.
            partition: the partition to use whatever the key is; None lets the partitioner choose.
            options: `headers`, `timestamp_ms` and `on_delivery`, see `SendOptions`.

        Returns:
            The record's delivery; its `result()` waits for the outcome. It may be ignored.

        Raises:
            BufferFullError: the buffer had no room within `max.block.ms`.
            ClientTimeoutError: the topic's metadata did not arrive within `max.block.ms`.
            RecordTooLargeError: the record is larger than `max.request.size`.
            UnfitRecordError: an argument has the wrong type.
            InvalidRecordError: the topic is blank, or the timestamp is out of range.
            UnknownTopicError: the topic does not exist.
            UnknownPartitionError: the partition does not exist.
            IllegalTransactionStateError: the producer is transactional and no transaction is open.
            ForkedClientError: the process was forked after the producer was created.
        """
        with self._lock:
            if self._needs_preparation:
                given = ProducerRecord(topic, value, key, partition)
                (topic, value, key, partition, _, _), options = self._core.prepare(given, options)
            now = self._wall_ms()
            batch = self._enqueue(topic, key, value, partition, options, now)
            if batch is None:
                record = (key, value, partition)
                plan = producer_plans.enqueue(self._core, topic, record, options, now)
                batch = self._run(plan)
            index = batch.count - 1
            if now >= self._step_due_ms or (not index and self._is_turn_full()):
                self._step(now)
            timestamp = options.get("timestamp_ms") if options else None
            return Delivery(batch, index, now if timestamp is None else timestamp, self._wait)

    def send_batch(
        self, topic: str, records: Iterable[BatchRecord], partition: int | None = None
    ) -> None:
        """Queue many records at a lower cost than `send`.

        The records have no callbacks and no deliveries. `failed` counts those that fail, and
        `flush` raises the first error.

        Args:
            topic: the topic's name.
            records: tuples (key, value, headers, timestamp in ms or None).
            partition: if given, all records go there in order; else the partitioner chooses.

        Raises:
            ClientError: as of `send`. Records before the refused record stay queued.
        """
        with self._lock:
            self._send_batch(topic, records, partition)

    def _send_batch(
        self, topic: str, records: Iterable[BatchRecord], partition: int | None
    ) -> None:
        if self._core.needs_preparation:
            records = self._core.prepare_all(topic, records)
        target = self._core.target(topic, partition) or self._run(
            producer_plans.find_target(self._core, topic, partition)
        )
        if partition is not None:
            self._extend(target.partitions[partition], iter(records))
            return
        buckets: dict[int, list[BatchRecord]] = {}
        choose = target.choose
        for index, record in enumerate(records, 1):
            try:
                chosen = choose(record[0], record[1])
            except (TypeError, ValueError, LookupError) as error:
                raise_unfit(topic, record, error)
            buckets.setdefault(chosen, []).append(record)
            if index % _SORTED_AT_ONCE == 0:
                self._extend_all(target, buckets)
                target = self._core.target(topic) or self._run(
                    producer_plans.find_target(self._core, topic, None)
                )
                choose = target.choose
        self._extend_all(target, buckets)

    def _extend_all(self, target: Target, buckets: dict[int, list[BatchRecord]]) -> None:
        for partition, records in buckets.items():
            self._extend(target.partitions[partition], iter(records))
        buckets.clear()

    def _extend(self, tp: TopicPartition, records: Iterable[BatchRecord]) -> None:
        iterator = iter(records)
        pending: BatchRecord | None = None
        while True:
            now = self._wall_ms()
            pending = self._accumulator.extend(tp, iterator, pending, now)
            if self._accumulator.ready:
                self._step(now)
            if pending is None:
                return
            if not self._accumulator.has_room:
                self._run(producer_plans.wait_for_room(self._core))

    def poll(self, timeout_ms: float = 0.0) -> None:
        """Process network events and run callbacks for up to `timeout_ms`.

        Returns early when no record is pending. 0 processes the events that have already arrived.
        """
        with self._lock:
            self._session.check_usable()
            self._send_due()
            self._run_until(lambda: self._accumulator.is_empty, timeout_ms)

    def _run_plan(self, plan: Callable[..., WaitingPlan[T]], *args: Any, **kwargs: Any) -> T:
        with self._lock:
            self._core.check_open()
            return self._run(plan(self._core, *args, **kwargs))

    def _run(self, plan: WaitingPlan[T]) -> T:
        """Run a plan and wait for each of its steps.

        Before each wait, batches that are full or due are sent: the sender may have held them back
        to send several together.
        """

        def wait(step: Until) -> bool:
            self._send_due()
            return self._run_until(step.condition, step.limit_ms)

        return run_plan(plan, wait)

    def _wait_for_delivery(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Run the loop until the condition holds, for up to `timeout` seconds."""
        with self._lock:
            self._session.check_usable()
            self._send_due()
            limit_ms = self._core.delivery_limit_ms if timeout is None else timeout * _MS_PER_S
            return self._run_until(condition, limit_ms)

    def _run_until(self, condition: Callable[[], bool], limit_ms: float | None) -> bool:
        if condition():
            return True
        self._check_may_wait()
        return self._stepper.run_until(condition, limit_ms)

    def _check_may_wait(self) -> None:
        if self._stepper.is_running:
            raise ClientError(
                "a callback cannot wait: it may send records to topics that the producer knows, "
                "while the buffer has room, but not call flush(), close(), poll() or result()"
            )

    def _step(self, now: int) -> None:
        """Send ready batches and process arrived responses, without waiting."""
        self._step_due_ms = now + self._linger_ms
        self._closed_seen = self._accumulator.closed_count
        self._send_due()
        # A callback runs inside the loop, which continues after the callback.
        if not self._stepper.is_running:
            self._stepper.run_until(_never, 0)

    def _send_due(self) -> None:
        """Send batches that are full or older than `linger.ms` in the next loop iteration."""
        self._accumulator.make_lingered_due()
        self._core.sender.pump()

    # Transactions

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Return a `with` block that commits at its end and aborts on an exception."""
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            if self._core.is_in_transaction:
                self.abort_transaction()
            raise


def _never() -> bool:
    return False


class Producer(SharedProducer, ClosedByUser):
    """Sends records to topics. Use it in a `with` block, or call `close()`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of such strings.
        config: Kafka's producer settings with "_" for "."; `**{"linger.ms": 1}` works too. Further
            keys: `key_serializer` and `value_serializer` (functions from a value to bytes),
            `partitioner` ("round_robin", or a function of (key, partitions, available)),
            `interceptors` (a list of `ProducerInterceptor`).

    Raises:
        ClientConfigError: a setting is unknown or has an invalid value.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str] | None = None, **config: Any) -> None:
        parts, keys = take_parts(config)
        checked = check_partitioner(ClientConfig.parse(keys_with_servers(bootstrap_servers, keys)))
        session = Session(checked, "producer")
        super().__init__(session, checked, lambda _self: session.close(), parts)
        self._servers = ",".join(f"{host}:{port}" for host, port in checked.bootstrap_servers)
        self._watch(session.lifetime)

    def __repr__(self) -> str:
        return f"Producer({self._servers!r})"

    def _close_at_exit(self, timeout: float) -> None:
        # A daemon thread may be in a call that does not end.
        if not self._lock.acquire(timeout=timeout):
            raise ClientError("another thread is in a call of the producer")
        try:
            self._session.check_idle()
            self.close(timeout)
        finally:
            self._lock.release()
