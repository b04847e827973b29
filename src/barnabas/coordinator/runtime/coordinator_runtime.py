"""Runs the shards of one coordinator (Kafka's CoordinatorRuntime).

A coordinator keeps its state in an internal topic. Each partition of the topic has a shard on its
leader. The runtime maps keys, such as group ids, to partitions, by Kafka's formula with Java's
hash, and each `StatePartition` does the rest.
"""

from __future__ import annotations

import logging
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.coordinator.runtime.shard import Shard, ShardState
from barnabas.coordinator.runtime.state_partition import StatePartition
from barnabas.metrics.measurements import SampledValues
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.java_collections import string_hash
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.runtime.coordinator_record import (
        CoordinatorResult,
        TransactionalProducer,
        TransactionEnding,
    )
    from barnabas.coordinator.runtime.runtime_dependencies import RuntimeDependencies
    from barnabas.coordinator.runtime.shard import ShardContext

_log = logging.getLogger(__name__)


_INT_MIN = -(1 << 31)
# Hashes are cached, since a member sends its group id with each heartbeat and commit. The limits
# bound the memory of the cache.
_CACHED_HASHES_MAX = 1_024
_CACHED_LENGTH_MAX = 256


def java_hash(text: str) -> int:
    """Return Java's String.hashCode: over UTF-16 code units, as a signed 32-bit integer."""
    value = string_hash(text)
    return value - (1 << 32) if value & 0x8000_0000 else value


_cached_java_hash = lru_cache(_CACHED_HASHES_MAX)(java_hash)


def partition_for(key: str, partition_count: int) -> int:
    """Return the state partition of a key. The leader of this partition is its coordinator."""
    value = java_hash(key) if len(key) > _CACHED_LENGTH_MAX else _cached_java_hash(key)
    # As in Kafka, 0 replaces the absolute value of the smallest integer, which overflows in Java.
    return (0 if value == _INT_MIN else abs(value)) % partition_count


S = TypeVar("S", bound=Shard)
R = TypeVar("R")


class CoordinatorRuntime(Generic[S]):
    """The shards of the state partitions that this broker leads.

    A coordinator adds three parts: a `Shard` with its requests and timers, its record types, and
    request handlers that call `read` and `write`.
    """

    def __init__(
        self,
        topic: str,
        dependencies: RuntimeDependencies,
        make_shard: Callable[[ShardContext], S],
    ) -> None:
        # The internal topic that stores the state.
        self.topic = topic
        self._dependencies = dependencies
        self._make_shard = make_shard
        # Number of partitions of the existing topic, 0 without it. The broker sets it with each
        # metadata image. The configured number applies to the creation of the topic only.
        self.partition_count = 0
        # The led partitions, by index. `on_elected` adds and `on_resigned` removes them.
        self._partitions: dict[int, StatePartition[S]] = {}
        # Durations of loading, in ms.
        self.load_times = SampledValues()
        # Numbers of earlier leader epochs. They only increase. Damaged records that were skipped:
        self._skipped_records_before = 0
        # Operations of timers that failed:
        self._failed_timers_before = 0

    def partition_for(self, key: str) -> int | None:
        """Return the state partition of a key, such as a group id.

        Returns:
            The partition, or None if the topic does not exist.
        """
        return partition_for(key, self.partition_count) if self.partition_count else None

    # Leadership.

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load the partition after this broker became its leader. Ignore a repeated epoch."""
        known = self._partitions.get(partition)
        if known is not None:
            if known.leader_epoch >= leader_epoch:
                return
            self.on_resigned(partition)
        key = TopicPartition(self.topic, partition)
        found = self._dependencies.log.partition(key)
        if isinstance(found, ErrorCode):
            _log.error(
                "Cannot load a coordinator partition: partition=%s leader_epoch=%d error=%s",
                key,
                leader_epoch,
                found.name,
            )
            return
        started_ms = self.now_ms()

        def on_loaded() -> None:
            now_ms = self.now_ms()
            self.load_times.record(now_ms - started_ms, now_ms)

        led = StatePartition(key, leader_epoch, self._dependencies, self._make_shard)
        self._partitions[partition] = led
        led.load(found.log, on_loaded)

    def now_ms(self) -> float:
        """Return the monotonic clock that measures loading."""
        return self._dependencies.clock.monotonic_ms()

    def on_resigned(self, partition: int) -> None:
        """Drop the partition's state after the loss of its leadership. Fail held responses."""
        led = self._partitions.pop(partition, None)
        if led is None:
            return
        self._skipped_records_before += led.skipped_records
        self._failed_timers_before += led.failed_timers
        if led.state is not ShardState.CLOSED:
            led.close()
        led.fail_held_responses(ErrorCode.NOT_COORDINATOR)

    def shutdown(self) -> None:
        """Stop all shards. New requests get NOT_COORDINATOR; held responses complete at commit.

        A second call does nothing.
        """
        for led in self._partitions.values():
            if led.state is not ShardState.CLOSED:
                led.close()

    # Requests.

    def read(self, key: str, operation: Callable[[S], R]) -> R | ErrorCode:
        """Return the result of `operation` on the committed state of the key's shard.

        Returns:
            The result, or NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or UNKNOWN_SERVER_ERROR if
            `operation` raises.
        """
        led = self._find(key)
        return ErrorCode.NOT_COORDINATOR if led is None else led.read(operation)

    def confirm_leadership(self, partition: int, on_done: Callable[[ErrorCode], None]) -> None:
        """Check that the state of a state partition was not out of date when this was called.

        A coordinator that is cut off from the cluster may not know of its successor. A client that
        may read no outdated state calls this before `read`.

        Args:
            partition: index of the state partition.
            on_done: called once, perhaps before this returns, with NONE or the error for the
                client.
        """
        led = self._partitions.get(partition)
        if led is None:
            on_done(ErrorCode.NOT_COORDINATOR)
        else:
            led.confirm_leadership(on_done)

    def write(
        self,
        key: str,
        operation: Callable[[S], CoordinatorResult[R]],
        on_done: Callable[[R | None, ErrorCode], None],
        producer: TransactionalProducer | None = None,
    ) -> None:
        """Run `operation`, append and replay its records, and respond after their commit.

        Args:
            key: selects the shard.
            operation: returns the response and the records. It must not change the state that the
                records replay.
            on_done: gets the response and NONE, or None and the error; called once, perhaps before
                this returns.
            producer: the client's producer if the records belong to its transaction.
        """
        led = self._find(key)
        if led is None:
            on_done(None, ErrorCode.NOT_COORDINATOR)
        else:
            led.write(operation, on_done, producer)

    def write_jointly(
        self,
        key: str,
        operation: Callable[[S], CoordinatorResult[R]],
        on_done: Callable[[R | None, ErrorCode], None],
    ) -> None:
        """Write like `write`. Writes of several keys in one turn may share a batch.

        Args:
            key: selects the shard. The operation must not read or change the state of other keys.
            operation: returns the response and the records.
            on_done: gets the response or the error, as from `write`.
        """
        led = self._find(key)
        if led is None:
            on_done(None, ErrorCode.NOT_COORDINATOR)
        elif self._dependencies.shares_batches:
            led.write_jointly(key, operation, on_done)
        else:
            led.write(operation, on_done)

    def write_to(
        self,
        partition: int,
        operation: Callable[[S], CoordinatorResult[R]],
        on_done: Callable[[R | None, ErrorCode], None],
    ) -> None:
        """Write to the shard of a state partition, like `write`."""
        led = self._partitions.get(partition)
        if led is None:
            on_done(None, ErrorCode.NOT_COORDINATOR)
        else:
            led.write(operation, on_done)

    def complete_transaction(
        self, partition: int, ending: TransactionEnding, on_done: Callable[[ErrorCode], None]
    ) -> None:
        """Append the marker of a client's transaction to a state partition, and apply it.

        Args:
            partition: index of the state partition.
            ending: the marker.
            on_done: called once, with NONE after the marker is committed, or with an error.
        """
        led = self._partitions.get(partition)
        if led is None:
            on_done(ErrorCode.NOT_COORDINATOR)
        else:
            led.complete_transaction(ending, on_done)

    def batch_bytes_max(self, key: str) -> int:
        """Return the maximum size of a batch of the key's state partition, in bytes.

        There is no limit for compressed batches, since the size of their records does not determine
        the batch size. There is also none if the partition is not on this broker: then the write
        fails.
        """
        partition = self.partition_for(key)
        if self._dependencies.compression or partition is None:
            return sys.maxsize
        found = self._dependencies.log.partition(TopicPartition(self.topic, partition))
        return sys.maxsize if isinstance(found, ErrorCode) else found.log.config.max_message_bytes

    def _find(self, key: str) -> StatePartition[S] | None:
        partition = self.partition_for(key)
        return None if partition is None else self._partitions.get(partition)

    # Observation.

    def state(self, partition: int) -> ShardState | None:
        """Return the state of a shard, or None if this broker does not lead the partition."""
        led = self._partitions.get(partition)
        return None if led is None else led.state

    def shards(self) -> list[S]:
        """Return all shards, including those that are being loaded."""
        return [each.shard for each in self._partitions.values()]

    def active_shards(self) -> list[S]:
        """Return the loaded shards."""
        active = ShardState.ACTIVE
        return [each.shard for each in self._partitions.values() if each.state is active]

    def active_partitions(self) -> list[int]:
        """Return the indexes of the state partitions with a loaded shard."""
        active = ShardState.ACTIVE
        return [index for index, each in self._partitions.items() if each.state is active]

    def state_counts(self) -> dict[ShardState, int]:
        """Return the number of shards in each state but CLOSED."""
        counts: dict[ShardState, int] = dict.fromkeys(ShardState, 0)
        del counts[ShardState.CLOSED]
        for led in self._partitions.values():
            if led.state in counts:
                counts[led.state] += 1
        return counts

    @property
    def is_loading(self) -> bool:
        """Whether a shard is being loaded, or waits for the commit of its loaded records."""
        return any(each.is_loading for each in self._partitions.values())

    @property
    def skipped_records(self) -> int:
        """Number of damaged records that loading has skipped since the start."""
        skipped = sum(each.skipped_records for each in self._partitions.values())
        return self._skipped_records_before + skipped

    @property
    def failed_timers(self) -> int:
        """Number of operations of timers that raised an exception since the start."""
        failed = sum(each.failed_timers for each in self._partitions.values())
        return self._failed_timers_before + failed
