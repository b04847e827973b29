"""The blocking producer: `send`, `flush`, `close`, and `send_batch` for many records.

The producer has no thread. Records make progress while `send`, `poll`, `flush` or a delivery's
`result` runs. End with `flush()` or `close()`, or use a `with` block.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, Unpack

from barnabas.client.producer.delivery import Delivery
from barnabas.client.producer.interceptors import ProducerRecord
from barnabas.client.producer.producer_face import MS_PER_S, ProducerFace
from barnabas.client.producer.unfit_record import raise_unfit
from barnabas.client.session.with_block import WithBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from barnabas.client.config import ClientConfig
    from barnabas.client.connections.metadata_cache import PartitionInfo
    from barnabas.client.errors import ClientError
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.producer.accumulator import BatchRecord
    from barnabas.client.producer.producer_batch import ProducerBatch
    from barnabas.client.producer.producer_core import SendOptions, Target
    from barnabas.client.producer.producer_parts import ProducerParts
    from barnabas.client.session.session import Session
    from barnabas.client.topic_partition import K, TopicPartition
    from barnabas.client.transactions.calls import Outcome

__all__ = ["SharedProducer"]

# Number of records that `send_batch` groups by partition at a time.
_SORTED_AT_ONCE = 5_000


class SharedProducer(WithBlock, ProducerFace):
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
        self._batches_per_turn = self._core.batches_per_turn
        self._wait = self._run_until
        self._linger_ms = config.linger_ms

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
            ClientError: as of `flush`. The producer is closed.
        """
        if self._closed:
            return
        if self._session.lifetime.is_forked:
            # After a fork, pending records belong to the parent process.
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
        """Wait for the topic's metadata or for room until the record can be queued."""
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
        """Process network events and run callbacks for up to `timeout_ms`.

        Returns early when no record is pending. 0 processes the events that have already arrived.
        """
        self._check_usable()
        self._send_due()
        self._stepper.run_until(lambda: self._accumulator.is_empty, timeout_ms)

    def flush(self, timeout: float | None = None) -> None:
        """Send all pending records and wait until each is delivered or has failed.

        Args:
            timeout: seconds; None waits until `delivery.timeout.ms` has decided every record.

        Raises:
            ClientTimeoutError: some records are still pending.
            ClientError: the first failed record without a callback whose error was not read.
        """
        self._check_open()
        self._end_flush(timeout, is_empty=self._run_until(self._core.flush(), timeout))

    def _run_until(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Let the loop run until the predicate holds; `timeout` in seconds.

        Batches that are full or due are sent first: the sender may have held them back to send
        several together.
        """
        self._send_due()
        timeout_ms = self._settling_ms() if timeout is None else timeout * MS_PER_S
        return self._stepper.run_until(predicate, timeout_ms)

    def _step(self, now: int) -> None:
        """Send ready batches and process arrived responses, without waiting."""
        self._stepped_ms = now
        self._closed_seen = self._accumulator.closed_count
        self._send_due()
        self._stepper.run_until(_never, 0)

    def _send_due(self) -> None:
        """Send batches that are full or older than `linger.ms` in the next loop iteration."""
        self._accumulator.make_lingered_due()
        self._core.sender.pump()

    def _wait_for_room(self) -> None:
        self._make_room()
        if not self._stepper.run_until(self._has_room, self._config.max_block_ms):
            raise self._full()

    # Transactions

    def init_transactions(self, timeout: float | None = None) -> None:
        """Register `transactional_id` with its coordinator; call it once, before all transactions.

        Other producers with this id are fenced. Their open transaction is aborted; a commit that
        has started is completed.

        Args:
            timeout: seconds; None means `max.block.ms`. After a timeout the operation continues;
                call the same method again to wait for it.

        Raises:
            ClientTimeoutError: the operation did not end in time.
            ClientConfigError: the producer has no `transactional_id`.
            IllegalTransactionStateError: the producer is already initialized.
            ClientError: the coordinator refused.
        """
        self._end_of(self._core.transactions.initialize(), timeout)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[K, int | CommittedOffset],
        group_metadata: GroupGeneration | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a group's offsets as part of the transaction (KIP-447).

        Args:
            offsets: for each (topic, partition) the next offset to read.
            group_metadata: `consumer.group_metadata()` of the consumer that read the records, which
                lets the coordinator refuse an outdated member; or only the group's name.
            timeout: as of `init_transactions`.

        Raises:
            ClientTimeoutError: the operation did not end in time; call again.
            ProducerFencedError: another producer uses the id; fatal.
            ClientError: the coordinator refused; call `abort_transaction`.
        """
        self._end_of(self._core.transactions.send_offsets(offsets, group_metadata), timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Send all pending records and commit the transaction.

        Args:
            timeout: as of `init_transactions`.

        Raises:
            ClientTimeoutError: the outcome is unknown; call again to wait for it.
            ProducerFencedError: another producer uses the id; fatal.
            ClientError: a record was not delivered; call `abort_transaction` and start over.
        """
        self._end_of(self._core.transactions.commit(), timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction: `read_committed` consumers see none of its records.

        Args:
            timeout: as of `init_transactions`.

        Raises:
            ClientTimeoutError: the operation did not end in time; call again.
            ProducerFencedError: another producer uses the id; fatal.
        """
        self._end_of(self._core.transactions.abort(), timeout)

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

    def _end_of(self, outcome: Outcome, timeout: float | None) -> None:
        self._check_open()
        seconds = self._seconds_of(timeout)
        is_done = self._run_until(lambda: outcome.is_done, seconds)
        self._end_call(outcome, seconds, is_done=is_done)

    # Topics

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """Return the topic's partitions by number; waits for metadata if the topic is unknown.

        The broker creates the topic if auto-creation is enabled.

        Raises:
            UnknownTopicError: the topic does not exist.
            ClientTimeoutError: the metadata did not arrive within `max.block.ms`.
        """
        self._check_open()
        if self._core.target(topic) is None:
            self._learned(topic, None)
        return self._core.partitions(topic)

    def _learned(self, topic: str, partition: int | None) -> Target:
        """Wait for metadata of the partition; the broker may create the topic."""
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
