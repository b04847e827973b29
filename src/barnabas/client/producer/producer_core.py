"""The part that both producers share: it partitions, queues and sends, and never waits.

The return value of a call shows that it cannot proceed: the topic is unknown, or the buffer is
full. The blocking and the asyncio producer then wait in their own way and call again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypedDict

from barnabas.client.connections.lookups import Sought, TopicLookup
from barnabas.client.errors import ClientClosedError, ClientConfigError, UnknownPartitionError
from barnabas.client.producer.accumulator import REFUSALS, Accumulator
from barnabas.client.producer.partitioner import partitioner_for_topic
from barnabas.client.producer.sender import Sender
from barnabas.client.producer.user_objects import (
    ProducerRecord,
    check_options,
    exact_partition,
    exact_topic,
    raise_unfit,
    record_parts,
)
from barnabas.client.topic_partition import TopicPartition
from barnabas.client.transactions.manager import TransactionManager
from barnabas.runtime.process import watch_forks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.client.config import ClientConfig
    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.lookups import Coordinators
    from barnabas.client.connections.metadata_cache import PartitionInfo, TopicInfo
    from barnabas.client.errors import ClientError
    from barnabas.client.producer.accumulator import BatchRecord, PartitionQueue
    from barnabas.client.producer.partitioner import TopicPartitioner
    from barnabas.client.producer.producer_batch import DeliveryCallback, ProducerBatch
    from barnabas.client.producer.user_objects import ProducerParts
    from barnabas.client.retries import OnDone

__all__ = ["ProducerCore", "SendOptions", "Target"]

# Number of failed batches whose error is kept for a later flush.
_UNREPORTED_MAX = 1_000
_BYTES_PER_TURN = 512 * 1024
# Number of keys of a topic whose queue is remembered.
_KEYS_MAX = 65_536
# Added to a limit (ms), so that the error of the operation itself arrives first.
GRACE_MS = 5_000.0


class SendOptions(TypedDict, total=False):
    """Keyword arguments of `send` besides topic, value, key and partition."""

    # Pairs of a name (str) and a value (bytes or None).
    headers: Sequence[tuple[str, bytes | None]]
    # Milliseconds since 1970; None means the current time.
    timestamp_ms: int | None
    # Called with (RecordMetadata, None) or (None, ClientError) while a call of the producer runs;
    # this can be the same `send`.
    on_delivery: DeliveryCallback | None


class Target:
    """Partitions and partitioner of one topic; replaced when metadata changes."""

    __slots__ = (
        "by_key",
        "choose",
        "count",
        "generation",
        "partitioner",
        "partitions",
        "queues",
        "topic",
    )

    def __init__(self, topic: TopicInfo, generation: int, partitioner: TopicPartitioner) -> None:
        self.topic = topic.name
        self.generation = generation
        self.count = len(topic.partitions)
        self.partitions = [TopicPartition(topic.name, number) for number in range(self.count)]
        # Queues of the partitions, by number; None before the first record.
        self.queues: list[PartitionQueue | None] = [None] * self.count
        # Queues of recent keys; empty unless the key alone decides.
        self.by_key: dict[bytes, PartitionQueue] = {}
        self.partitioner = partitioner
        partitioner.renew(self.count, topic.available)
        self.choose = partitioner.choose


class ProducerSession(Protocol):
    """The parts of the client's session that a producer uses."""

    cluster: Cluster
    coordinators: Coordinators

    def check_usable(self) -> None:
        """Raise an error unless calls are allowed (client open, process not forked)."""
        ...


@dataclass(slots=True)
class TransactionCall:
    """A call of a transaction method that was started; it continues after the user's timeout."""

    # Name of the producer's method.
    name: str
    is_done: bool = False
    error: ClientError | None = None


class ProducerCore:
    """Queues and sends the records of one producer; `delivered` and `failed` count them."""

    def __init__(
        self, session: ProducerSession, config: ClientConfig, parts: ProducerParts
    ) -> None:
        cluster = session.cluster
        self.cluster = cluster
        self.config = config
        self._check_usable = session.check_usable
        self._parts = parts
        self._metadata = cluster.metadata
        self.sender = Sender(cluster, config, self._on_completed)
        self.accumulator = Accumulator(
            config, cluster.runtime.clock, cluster.runtime.timer, self.sender.pump
        )
        self._append = self.accumulator.append
        self.sender.attach(self.accumulator)
        self.manager: TransactionManager | None = None
        if config.transactional_id is not None:
            self.manager = TransactionManager(cluster, session.coordinators, config, self.sender)
            self.sender.attach_transactions(self.manager)
        # A started transaction call whose outcome the user has not read; None without one.
        self.unclaimed: TransactionCall | None = None
        # Numbers of acknowledged and of failed records.
        self.delivered = 0
        self.failed = 0
        # Failed batches whose error no caller has received yet, oldest first; the oldest are
        # dropped beyond the limit.
        self._unreported: deque[ProducerBatch] = deque(maxlen=_UNREPORTED_MAX)
        # Called when a batch or a transaction call is complete; the asyncio producer sets it.
        self.on_progress: Callable[[], None] = _nothing
        # Known topics; replaced by `_renewed`, emptied by `close` and `on_forked`.
        self._targets: dict[str, Target] = {}
        # Whether the producer is closed; this is final.
        self.is_closed = False
        # Number of batches to close before the event loop runs, unless linger.ms passes earlier. A
        # loop iteration costs as much as many records.
        self.batches_per_turn = max(
            1, min(_BYTES_PER_TURN, config.buffer_memory // 4) // max(1, config.batch_size)
        )
        # Whether `prepare` has to be called: the producer has serializers or interceptors.
        self.needs_preparation = any(
            part is not None
            for part in (parts.key_serializer, parts.value_serializer, parts.interceptors)
        )
        watch_forks(self)

    # Records

    def prepare(
        self, record: ProducerRecord, options: SendOptions
    ) -> tuple[ProducerRecord, SendOptions]:
        """Pass a record through interceptors and serializers; a serializer may block.

        Returns:
            The record to enqueue, and the options of `send` that belong to it.

        Raises:
            Exception: any exception of a serializer.
        """
        record, options = self.intercept(record, options)
        return self.serialize(record, may_block=True), options

    def intercept(
        self, record: ProducerRecord, options: SendOptions
    ) -> tuple[ProducerRecord, SendOptions]:
        """Pass a record through the interceptors.

        Returns:
            The record, and the options of `send` that belong to it.
        """
        parts = self._parts
        if parts.interceptors is not None:
            record = parts.interceptors.on_send(
                record._replace(
                    headers=options.get("headers", ()), timestamp_ms=options.get("timestamp_ms")
                )
            )
            options = {
                "headers": record.headers,
                "timestamp_ms": record.timestamp_ms,
                "on_delivery": parts.interceptors.wrap(options.get("on_delivery")),
            }
        return record, options

    def serialize(self, record: ProducerRecord, *, may_block: bool) -> ProducerRecord:
        """Pass a record through the serializers.

        Raises:
            SchemaLookup: a serializer would have to block, and may not.
            Exception: any exception of a serializer.
        """
        key, value = self._parts.key_serializer, self._parts.value_serializer
        topic = record.topic
        if key is not None:
            record = record._replace(key=key(topic, record.key, may_block))
        if value is not None:
            record = record._replace(value=value(topic, record.value, may_block))
        return record

    def prepare_all(self, topic: str, records: Iterable[BatchRecord]) -> Iterable[BatchRecord]:
        """Apply `prepare` to the records of `send_batch`; interceptors get no acknowledgements."""
        for record in records:
            key, value, headers, timestamp = record_parts(topic, record)
            given = ProducerRecord(topic, value, key, None, headers, timestamp)
            options: SendOptions = {"headers": headers, "timestamp_ms": timestamp}
            made, _options = self.prepare(given, options)
            yield made.key, made.value, made.headers, made.timestamp_ms

    def enqueue(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        options: SendOptions,
        now_ms: int,
    ) -> ProducerBatch | None:
        """Append a record to the queue of its partition; None lets the partitioner choose.

        Returns:
            The batch that ends with this record. None if the topic or partition is unknown (then
            `target` returns None too), or else if the buffer has no room.

        Raises:
            RecordTooLargeError: the record is larger than `max.request.size`.
            UnfitRecordError: a part of the record has the wrong type.
            InvalidRecordError: the topic is blank, or the timestamp is out of range.
            IllegalTransactionStateError: the producer is transactional and no transaction is open.
        """
        if self.manager is not None:
            self.manager.check_sending()
        if topic.__class__ is not str:
            topic = exact_topic(topic)
        target = self._targets.get(topic)
        if target is None or target.generation != self._metadata.generation:
            target = self.target(topic)
            if target is None:
                return None
        queued: BatchRecord | None = None
        on_delivery = None
        if options:
            check_options(topic, options)
            queued = (key, value, options.get("headers", ()), options.get("timestamp_ms"))
            on_delivery = options.get("on_delivery")
        try:
            # Most keys repeat.
            queue = target.by_key.get(key) if partition is None and key.__class__ is bytes else None
            if queue is None:
                queue = self._choose_queue(target, key, value, partition)
                if queue is None:
                    return None
            if queued is None:
                # The most frequent case, as `Accumulator.append` handles it.
                batch = queue.open
                if (
                    batch is not None
                    and batch.append(batch.count, now_ms, key, value, _NO_HEADERS) is not None
                ):
                    batch.count += 1
                    if now_ms > batch.max_timestamp:
                        batch.max_timestamp = now_ms
                    return batch
                queued = (key, value, _NO_HEADERS, now_ms)
            return self._append(queue.tp, queued, now_ms, on_delivery)
        except REFUSALS as error:
            raise_unfit(topic, queued or (key, value, _NO_HEADERS, now_ms), error)

    def _choose_queue(
        self, target: Target, key: bytes | None, value: bytes | None, partition: int | None
    ) -> PartitionQueue | None:
        """Return the queue of a record's partition; None if the topic has no such partition."""
        number = partition
        if number is None:
            number = target.choose(key, value)
        elif number.__class__ is not int:
            number = exact_partition(target.topic, number)
        if not 0 <= number < target.count:
            return None
        queue = target.queues[number]
        if queue is None:
            queue = target.queues[number] = self.accumulator.queue(target.partitions[number])
        if partition is None and key.__class__ is bytes and target.partitioner.is_by_key:
            if len(target.by_key) >= _KEYS_MAX:
                target.by_key.clear()
            target.by_key[key] = queue
        return queue

    def _on_completed(self, batch: ProducerBatch, error: ClientError | None) -> None:
        if error is None:
            self.delivered += batch.count
        else:
            self.failed += batch.count
            if not batch.is_reported and self.manager is None:
                # The errors of a transaction are raised by its commit.
                self._unreported.append(batch)
        self.on_progress()

    @property
    def transactions(self) -> TransactionManager:
        """The transaction manager.

        Raises:
            ClientConfigError: the producer has no `transactional_id`.
        """
        if self.manager is None:
            raise ClientConfigError("transactions need a producer with a transactional_id")
        return self.manager

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open; it must be aborted before the producer closes."""
        return self.manager is not None and self.manager.is_open

    @property
    def undelivered(self) -> int:
        """Number of records that are neither delivered nor failed."""
        return sum(batch.count for batch in self.accumulator.incomplete())

    def metrics(self) -> dict[str, float]:
        """Return totals and averages so far and the state of the buffer, under Kafka's names."""
        used = self.accumulator.reserved_bytes
        return {
            **self.sender.metrics.snapshot(),
            "record-error-total": self.failed,
            "buffer-total-bytes": self.config.buffer_memory,
            "buffer-available-bytes": max(0, self.config.buffer_memory - used),
        }

    def pop_unreported_error(self) -> ClientError | None:
        """Return the first error that no caller has received, and forget the others."""
        unreported = [batch for batch in self._unreported if not batch.is_reported]
        self._unreported.clear()
        return unreported[0].error if unreported else None

    @property
    def delivery_limit_ms(self) -> float:
        """Time in ms after which every sent record is delivered or has failed."""
        return self.config.delivery_timeout_ms + self.config.request_timeout_ms + GRACE_MS

    def check_open(self) -> None:
        """Raise an error unless calls are allowed.

        Raises:
            ClientClosedError: the producer or its client is closed.
            ForkedClientError: the process was forked after the client was created.
        """
        self._check_usable()
        if self.is_closed:
            raise ClientClosedError("the producer is closed")

    # Ends

    def on_forked(self) -> None:
        """Forget the topics in a forked child: every `send` then checks whether it may send."""
        self._targets.clear()

    def flush(self) -> Callable[[], bool]:
        """Send all pending batches now; return a predicate that says whether they are complete."""
        pending = self.accumulator.incomplete()
        self.accumulator.make_all_due()
        self.sender.pump()

        def is_done() -> bool:
            while pending:
                last = pending[-1]
                if last.halves:
                    pending[-1:] = last.halves
                elif last.is_completed:
                    pending.pop()
                else:
                    return False
            return True

        return is_done

    def close(self) -> None:
        """Fail all pending records and stop."""
        # Without targets, every later `send` looks up its topic and finds the producer closed.
        self._targets.clear()
        self.is_closed = True
        self.sender.close()
        if self._parts.interceptors is not None:
            self._parts.interceptors.close()

    # Topics

    def target(self, topic: str, partition: int | None = None) -> Target | None:
        """Return the partitions of a topic; None if `fetch_target` must fetch its metadata first.

        Raises:
            UnknownPartitionError: the partition is negative.
            UnfitRecordError: the topic is not a string, or the partition not an integer.
            InvalidRecordError: the topic is blank.
            IllegalTransactionStateError: the producer is transactional and no transaction is open.
            ForkedClientError: the process was forked after the client was created.
        """
        if self.manager is not None:
            self.manager.check_sending()
        topic = exact_topic(topic)
        if partition is not None:
            partition = exact_partition(topic, partition)
        target = self._targets.get(topic)
        if target is None or target.generation != self._metadata.generation:
            self._check_usable()
            info = self._metadata.topics.get(topic)
            if info is None or self.is_closed:
                return None
            target = self._renewed(info)
        if partition is None or 0 <= partition < target.count:
            return target
        if partition < 0:
            raise UnknownPartitionError(topic, partition, target.count)
        return None

    def fetch_target(self, topic: str, partition: int | None, on_done: OnDone[bool]) -> None:
        """Fetch metadata until the topic has the partition; the broker may create the topic."""
        cluster = self.cluster
        cluster.tracked.add(topic)
        cluster.allow_auto_creation = True

        def on_found(found: dict[str, TopicInfo] | None, error: ClientError | None) -> None:
            if found is None:
                if topic not in self._metadata.topics:
                    cluster.tracked.discard(topic)
                on_done(None, error)
            else:
                self._renewed(found[topic])
                on_done(True, None)

        limit = self.config.max_block_ms
        TopicLookup(cluster, [topic], limit, on_found, Sought(partition=partition or 0)).start()

    def partitions(self, topic: str) -> list[PartitionInfo]:
        """Return the partitions of a known topic, ordered by number."""
        known = self._metadata.topics[topic].partitions
        return [known[number] for number in sorted(known)]

    def _renewed(self, info: TopicInfo) -> Target:
        # A known topic is tracked too, so that metadata updates include it when its leaders change.
        self.cluster.tracked.add(info.name)
        before = self._targets.get(info.name)
        partitioner = before.partitioner if before is not None else self._partitioner(info.name)
        target = Target(info, self._metadata.generation, partitioner)
        self._targets[info.name] = target
        return target

    def _partitioner(self, topic: str) -> TopicPartitioner:
        def loads(partitions: Sequence[int]) -> list[int]:
            return [self._load(TopicPartition(topic, number)) for number in partitions]

        return partitioner_for_topic(self.config, self.cluster.runtime.rng, loads)

    def _load(self, tp: TopicPartition) -> int:
        """Return the number of unsent batches of a partition; -1 if its leader is unavailable."""
        limit_ms = self.config.partitioner_availability_timeout_ms
        if limit_ms and self.sender.stuck_ms(self._metadata.leader(tp)) > limit_ms:
            return -1
        queue = self.accumulator.queues.get(tp)
        return queue.waiting if queue is not None else 0


_NO_HEADERS: list[tuple[str, bytes | None]] = []


def _nothing() -> None:
    """Default of `on_progress`: do nothing."""
