"""The blocking producer: send, flush, close, and a path for whole batches.

There is no thread: what was sent moves on while `send`, `poll` or `flush` runs. End with `flush()`
or `close()`, or use it in a `with` block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypedDict, Unpack

from barnabas.client.accumulator import Accumulator
from barnabas.client.errors import (
    BufferFullError,
    ClientClosedError,
    ClientError,
    ClientTimeoutError,
    UnknownPartitionError,
)
from barnabas.client.partitioner import StickyPartitioner, partition_for_key
from barnabas.client.sender import Sender
from barnabas.client.topic_lookup import TopicLookup
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from barnabas.client.accumulator import BatchRecord
    from barnabas.client.cluster import Cluster
    from barnabas.client.config import ClientConfig
    from barnabas.client.metadata_cache import TopicInfo
    from barnabas.client.producer_batch import DeliveryCallback
    from barnabas.runtime.stepper import LoopStepper

__all__ = ["Producer", "SendOptions"]

# Records of `send_batch` without a partition that are sorted by partition at a time.
_SORTED_AT_ONCE = 5_000
_RECORD_OVERHEAD = 8


class SendOptions(TypedDict, total=False):
    """What `send` takes by keyword beside topic, value, key and partition."""

    # (name, bytes or None) pairs.
    headers: Sequence[tuple[str, bytes | None]]
    # Now if None.
    timestamp_ms: int | None
    # Called with (RecordMetadata, None) or (None, ClientError) within a later call of the producer.
    on_delivery: DeliveryCallback | None


class _Target:
    """What sending to a topic needs at hand; made anew when metadata changed."""

    __slots__ = ("available", "count", "generation", "partitions", "sticky")

    def __init__(self, topic: TopicInfo, generation: int, sticky: StickyPartitioner) -> None:
        self.generation = generation
        self.count = len(topic.partitions)
        self.partitions = [TopicPartition(topic.name, number) for number in range(self.count)]
        self.available: Sequence[int] = topic.available or range(self.count)
        self.sticky = sticky


class Producer:
    """Sends records; made by `Client.producer()`.

    `delivered` and `failed` count records. A record whose delivery failed and that had no
    `on_delivery` makes the next `flush()` or `close()` raise.
    """

    def __init__(
        self,
        cluster: Cluster,
        stepper: LoopStepper,
        config: ClientConfig,
        check_usable: Callable[[], None],
        on_closed: Callable[[Producer], None],
    ) -> None:
        self._cluster = cluster
        self._stepper = stepper
        self._config = config
        self._check_usable = check_usable
        self._on_closed = on_closed
        self._clock = cluster.runtime.clock
        self._sender = Sender(cluster, config, self._on_settled)
        self._accumulator = Accumulator(
            config, self._clock, cluster.runtime.timer, self._sender.pump
        )
        self._sender.attach(self._accumulator)
        self._targets: dict[str, _Target] = {}
        self.delivered = 0
        self.failed = 0
        # The first failure that nobody was told of.
        self._untold: ClientError | None = None
        self._linger_ms = config.linger_ms
        # `closed_count` of the accumulator when the loop last had a turn.
        self._closed_seen = 0
        # When the loop last had a turn, in ms of the wall clock.
        self._stepped_ms = 0
        self._closed = False

    def _on_settled(self, records: int, error: ClientError | None, told: bool) -> None:
        if error is None:
            self.delivered += records
            return
        self.failed += records
        if not told and self._untold is None:
            self._untold = error

    # Life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close(flush=error is None)

    def close(self, timeout: float | None = None, *, flush: bool = True) -> None:
        """Deliver what is held (unless `flush` is off), give up the rest.

        Raises:
            ClientError: as `flush`.
        """
        if self._closed:
            return
        try:
            if flush:
                self.flush(timeout)
        finally:
            self._closed = True
            # What is sent from now on has to look for its topic, and finds the producer closed.
            self._targets.clear()
            self._sender.close()
            self._on_closed(self)

    # Sending

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        **options: Unpack[SendOptions],
    ) -> None:
        """Queue a record; waits only for room in the buffer, or for the topic's metadata.

        Args:
            topic: its name; created by the broker if that is allowed there.
            value: bytes, None for a tombstone.
            key: bytes; the same key goes to the same partition, the one Java's client chooses.
            partition: where to, whatever the key.
            options: `headers`, `timestamp_ms` and `on_delivery`, see `SendOptions`.

        Raises:
            BufferFullError: no room within max.block.ms.
            RecordTooLargeError: over max.request.size.
            UnknownTopicError: no such topic or partition, even in metadata asked for just now.
        """
        now = self._clock.wall_ms()
        target = self._target(topic)
        if partition is None:
            if key is not None:
                partition = partition_for_key(key, target.count)
            else:
                size = _RECORD_OVERHEAD + (len(value) if value else 0)
                partition = target.sticky.choose(size, target.available)
        elif not 0 <= partition < target.count:
            target = self._target_with(topic, partition)
        tp = target.partitions[partition]
        on_delivery = None
        record: BatchRecord = (key, value, [], None)
        if options:
            record = (key, value, options.get("headers", ()), options.get("timestamp_ms"))
            on_delivery = options.get("on_delivery")
        accumulator = self._accumulator
        while not accumulator.append(tp, record, now, on_delivery):
            self._wait_for_room()
        if (
            accumulator.closed_count != self._closed_seen
            or now - self._stepped_ms >= self._linger_ms
        ):
            self._step(now)

    def send_batch(
        self, topic: str, records: Iterable[BatchRecord], partition: int | None = None
    ) -> None:
        """Queue many records cheaply: (key, value, headers, timestamp in ms or None) each.

        With a partition all go there in order; otherwise each goes where `send` would put it. No
        record has a callback: failures show in `failed` and make `flush` raise.

        Raises:
            as `send`; records before the one that raised stay queued.
        """
        target = self._target(topic)
        if partition is not None:
            if not 0 <= partition < target.count:
                target = self._target_with(topic, partition)
            self._extend(target.partitions[partition], iter(records))
            return
        buckets: dict[int, list[BatchRecord]] = {}
        for index, record in enumerate(records, 1):
            buckets.setdefault(self._place(target, record), []).append(record)
            if index % _SORTED_AT_ONCE == 0:
                self._extend_all(target, buckets)
                target = self._target(topic)
        self._extend_all(target, buckets)

    def _place(self, target: _Target, record: BatchRecord) -> int:
        key, value = record[0], record[1]
        if key is not None:
            return partition_for_key(key, target.count)
        size = _RECORD_OVERHEAD + (len(value) if value else 0)
        return target.sticky.choose(size, target.available)

    def _extend_all(self, target: _Target, buckets: dict[int, list[BatchRecord]]) -> None:
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
        self._accumulator.make_lingered_due()
        self._sender.pump()
        self._stepper.run_until(lambda: self._accumulator.is_empty, timeout_ms)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is delivered or given up.

        Args:
            timeout: seconds; None waits as long as delivery.timeout.ms lets records live.

        Raises:
            ClientTimeoutError: not all was settled in time.
            ClientError: records without a callback could not be delivered; the first reason.
        """
        self._check_open()
        self._accumulator.make_all_due()
        self._sender.pump()
        timeout_ms = None if timeout is None else timeout * 1000
        if not self._stepper.run_until(lambda: self._accumulator.is_empty, timeout_ms):
            raise ClientTimeoutError(f"flush: records still undelivered after {timeout} s")
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold

    def _check_open(self) -> None:
        self._check_usable()
        if self._closed:
            raise ClientClosedError("the producer is closed")

    def _step(self, now: int) -> None:
        """Send what is ready and take what has come, without waiting."""
        self._stepped_ms = now
        self._closed_seen = self._accumulator.closed_count
        self._accumulator.make_lingered_due()
        self._sender.pump()
        self._stepper.run_until(_never, 0)

    def _wait_for_room(self) -> None:
        self._check_open()
        self._accumulator.make_all_due()
        self._sender.pump()
        limit = self._config.max_block_ms
        if not self._stepper.run_until(lambda: self._accumulator.has_room, limit):
            raise BufferFullError(
                f"buffer.memory={self._config.buffer_memory} stayed full for max.block.ms={limit}: "
                f"the brokers take records slower than they are sent, or not at all"
            )

    # Topics

    def _target(self, topic: str) -> _Target:
        target = self._targets.get(topic)
        generation = self._cluster.metadata.generation
        if target is not None and target.generation == generation:
            return target
        self._check_open()
        info = self._cluster.metadata.topics.get(topic)
        if info is None:
            info = self._learn(topic)
        return self._new_target(info)

    def _target_with(self, topic: str, partition: int) -> _Target:
        """The target of a topic, with a partition that is not known yet: it may be a new one."""
        self._check_open()
        if partition < 0:
            raise UnknownPartitionError(topic, partition, self._target(topic).count)
        return self._new_target(self._learn(topic, partition))

    def _new_target(self, info: TopicInfo) -> _Target:
        # Also a topic that was known already has to be looked at again when its leaders move.
        self._cluster.tracked.add(info.name)
        target = self._targets.get(info.name)
        if target is not None:
            sticky = target.sticky
        else:
            sticky = StickyPartitioner(self._cluster.runtime.rng, self._config.batch_size)
        target = _Target(info, self._cluster.metadata.generation, sticky)
        self._targets[info.name] = target
        return target

    def _learn(self, topic: str, partition: int = 0) -> TopicInfo:
        """Wait for metadata with the topic's partition; the broker may create the topic now."""
        cluster = self._cluster
        cluster.tracked.add(topic)
        cluster.allow_auto_creation = True
        outcome: list[tuple[dict[str, TopicInfo] | None, ClientError | None]] = []
        TopicLookup(
            cluster,
            [topic],
            self._config.max_block_ms,
            lambda found, error: outcome.append((found, error)),
            partition=partition,
        ).start()
        self._stepper.run_until(lambda: bool(outcome))
        found, error = outcome[0]
        if found is None:
            if topic not in cluster.metadata.topics:
                cluster.tracked.discard(topic)
            assert error is not None
            raise error
        return found[topic]


def _never() -> bool:
    return False
