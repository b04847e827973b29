"""The blocking producer: send, flush, close, and a path for whole batches.

There is no thread: what was sent moves on while `send`, `poll`, `flush` or a delivery's `result`
runs. End with `flush()` or `close()`, or use it in a `with` block.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, Unpack

from barnabas.client.producer.delivery import Delivery
from barnabas.client.producer.interceptors import ProducerRecord
from barnabas.client.producer.producer_face import MS_PER_S, ProducerFace
from barnabas.client.producer.unfit_record import raise_unfit
from barnabas.client.with_block import WithBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from barnabas.client.config import ClientConfig
    from barnabas.client.errors import ClientError
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.group_offsets import CommittedOffset
    from barnabas.client.metadata_cache import PartitionInfo
    from barnabas.client.producer.accumulator import BatchRecord
    from barnabas.client.producer.producer_batch import ProducerBatch
    from barnabas.client.producer.producer_core import SendOptions, Target
    from barnabas.client.producer.producer_parts import ProducerParts
    from barnabas.client.session import Session
    from barnabas.client.topic_partition import K, TopicPartition
    from barnabas.client.transactions.calls import Outcome

__all__ = ["SharedProducer"]

# Records of `send_batch` without a partition that are sorted by partition at a time.
_SORTED_AT_ONCE = 5_000


class SharedProducer(WithBlock, ProducerFace):
    """Sends records over the connections of a client; made by `Client.producer()`.

    A record whose delivery failed makes the next `flush()` or `close()` raise, unless it had an
    `on_delivery` or its delivery was asked.
    """

    def __init__(
        self,
        session: Session,
        config: ClientConfig,
        on_closed: Callable[[Any], None],
        parts: ProducerParts,
    ) -> None:
        """Send over the session's connections; call `on_closed` with the producer at its end."""
        super().__init__(session, config, parts)
        self._session = session
        self._stepper = session.stepper
        self._on_closed = on_closed
        self._enqueue = self._core.enqueue
        self._batches_per_turn = self._core.batches_per_turn
        self._wait = self._run_until
        self._linger_ms = config.linger_ms

    # Life

    def _give_up(self) -> None:
        self.close(flush=False)

    def close(self, timeout: float | None = None, *, flush: bool = True) -> None:
        """Deliver what is held (unless `flush` is off), give up the rest; abort a transaction.

        Raises:
            ClientError: as `flush`.
        """
        if self._closed:
            return
        if self._session.lifetime.is_forked:
            # What is held is the parent's to deliver.
            self._closed = True
            return
        try:
            if self._core.is_in_transaction:
                self.abort_transaction(timeout)
            elif flush:
                self.flush(timeout)
        finally:
            self._closed = True
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
        """Queue a record; waits only for room in the buffer, or for the topic's metadata.

        Args:
            topic: its name; created by the broker if that is allowed there.
            value: bytes, None for a tombstone; with a `value_serializer` what that takes.
            key: bytes; the same key goes to the same partition, the one Java's client chooses.
            partition: where to, whatever the key.
            options: `headers`, `timestamp_ms` and `on_delivery`, see `SendOptions`.

        Returns:
            The record's delivery: `result()` waits for it; may be thrown away.

        Raises:
            BufferFullError: no room within max.block.ms.
            RecordTooLargeError: over max.request.size.
            UnfitRecordError: an argument has the wrong type.
            InvalidRecordError: a blank topic, or a timestamp that cannot be.
            UnknownTopicError: no such topic or partition, even in metadata asked for just now.
        """
        if self._core.needs_preparation:
            given = ProducerRecord(topic, value, key, partition)
            (topic, value, key, partition, _, _), options = self._core.prepare(given, options)
        now = self._clock.wall_ms()
        record = (key, value, partition)
        batch = self._enqueue(topic, record, options, now)
        if batch is None:
            batch = self._enqueue_when_possible(topic, record, options, now)
        index = batch.count - 1
        if (
            self._accumulator.closed_count - self._closed_seen >= self._batches_per_turn
            or now - self._stepped_ms >= self._linger_ms
        ):
            self._step(now)
        timestamp = options.get("timestamp_ms") if options else None
        return Delivery(batch, index, now if timestamp is None else timestamp, self._wait)

    def _enqueue_when_possible(
        self,
        topic: str,
        record: tuple[bytes | None, bytes | None, int | None],
        options: SendOptions,
        now: int,
    ) -> ProducerBatch:
        """Wait for the topic's metadata, or for room, as often as it takes."""
        while True:
            if self._core.target(topic, record[2]) is None:
                self._learned(topic, record[2])
            else:
                self._wait_for_room()
            batch = self._enqueue(topic, record, options, now)
            if batch is not None:
                return batch

    def send_batch(
        self, topic: str, records: Iterable[BatchRecord], partition: int | None = None
    ) -> None:
        """Queue many records cheaply: (key, value, headers, timestamp in ms or None) each.

        With a partition all go there in order; otherwise each goes where `send` would put it. No
        record has a callback or a delivery: failures show in `failed` and make `flush` raise.

        Raises:
            as `send`; records before the one that raised stay queued.
        """
        if self._core.needs_preparation:
            records = self._core.prepare_all(topic, records)
        target = self._core.target(topic, partition) or self._learned(topic, partition)
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
                target = self._core.target(topic) or self._learned(topic, None)
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
            now = self._clock.wall_ms()
            pending = self._accumulator.extend(tp, iterator, pending, now)
            if self._accumulator.ready:
                self._step(now)
            if pending is None:
                return
            if not self._accumulator.has_room:
                self._wait_for_room()

    def poll(self, timeout_ms: float = 0.0) -> None:
        """Let deliveries go on, and callbacks run, for up to `timeout_ms`."""
        self._check_usable()
        self._send_due()
        self._stepper.run_until(lambda: self._accumulator.is_empty, timeout_ms)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is delivered or given up.

        Args:
            timeout: seconds; None waits as long as delivery.timeout.ms lets records live.

        Raises:
            ClientTimeoutError: not all was settled in time.
            ClientError: records could not be delivered and nobody was told; the first reason.
        """
        self._check_open()
        self._end_flush(timeout, is_empty=self._run_until(self._core.flush(), timeout))

    def _run_until(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Let the loop run until the predicate holds; `timeout` in seconds.

        What is full or due leaves first: a sender lets some batches come together before it does.
        """
        self._send_due()
        timeout_ms = self._settling_ms() if timeout is None else timeout * MS_PER_S
        return self._stepper.run_until(predicate, timeout_ms)

    def _step(self, now: int) -> None:
        """Send what is ready and take what has come, without waiting."""
        self._stepped_ms = now
        self._closed_seen = self._accumulator.closed_count
        self._send_due()
        self._stepper.run_until(_never, 0)

    def _send_due(self) -> None:
        """Have what is full, or has lingered, leave with the loop's next turn."""
        self._accumulator.make_lingered_due()
        self._core.sender.pump()

    def _wait_for_room(self) -> None:
        self._make_room()
        if not self._stepper.run_until(self._has_room, self._config.max_block_ms):
            raise self._full()

    # Transactions

    def init_transactions(self, timeout: float | None = None) -> None:
        """Take `transactional_id` over; to be called once, before the first transaction.

        Whoever had the id is fenced; what it left open is aborted, or its commit finished.

        Args:
            timeout: seconds, max.block.ms if None. After a time-out the same call goes on waiting;
                so with the others.

        Raises:
            ClientTimeoutError: no end in time.
            ClientError: the coordinator refused.
        """
        self._end_of(self._core.transactions.initialize(), timeout)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[K, int | CommittedOffset],
        group_metadata: GroupGeneration | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a group's offsets with the transaction, if it is committed (KIP-447).

        Args:
            offsets: for each (topic, partition) the next offset to be read.
            group_metadata: of the consumer that read: `consumer.group_metadata()`; or a group's
                name, which fences nobody.
            timeout: as of `init_transactions`.
        """
        self._end_of(self._core.transactions.send_offsets(offsets, group_metadata), timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Deliver all that was sent, then commit.

        Raises:
            ClientTimeoutError: no end in time: whether it is committed is not known; call again.
            ProducerFencedError: another producer has the id; fatal.
            ClientError: something was not delivered; `abort_transaction` and do it again.
        """
        self._end_of(self._core.transactions.commit(), timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort: nobody who reads read_committed sees what was sent.

        Raises:
            ClientTimeoutError: no end in time; call again.
            ProducerFencedError: another producer has the id; fatal.
        """
        self._end_of(self._core.transactions.abort(), timeout)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """A `with` block as a transaction: committed at its end, aborted when it raises."""
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            if self._core.is_in_transaction:
                self.abort_transaction()
            raise

    def _end_of(self, outcome: Outcome, timeout: float | None) -> None:
        self._check_open()
        seconds = self._seconds_of(timeout)
        is_done = self._run_until(lambda: outcome.is_done, seconds)
        self._end_call(outcome, seconds, is_done=is_done)

    # Topics

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The topic's partitions, by number; waits for metadata if it is not known.

        Raises:
            UnknownTopicError: no such topic.
        """
        self._check_open()
        if self._core.target(topic) is None:
            self._learned(topic, None)
        return self._core.partitions(topic)

    def _learned(self, topic: str, partition: int | None) -> Target:
        """Wait for metadata with the topic's partition; the broker may create the topic now."""
        self._check_open()
        outcome: list[ClientError | None] = []
        self._core.learn(topic, partition, lambda _found, error: outcome.append(error))
        if not self._stepper.run_until(lambda: bool(outcome), self._learning_ms()):
            raise self._not_learned(topic)
        if outcome[0] is not None:
            raise outcome[0]
        target = self._core.target(topic, partition)
        assert target is not None, "just learned"
        return target


def _never() -> bool:
    return False
