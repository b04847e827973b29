"""`barnabas.Consumer`: the blocking consumer, with its own connections.

Method names and config keys are those of Kafka's Java consumer, in snake case. Only one thread at a
time may call the consumer; `wakeup` and `close` are safe from any thread. A consumer in a group has
one background thread that keeps the membership alive between calls. A consumer without a group has
no thread.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from barnabas.client.consumer.calls.blocking_calls import BlockingCalls
from barnabas.client.consumer.calls.consumer_calls import ConsumerIterator
from barnabas.client.consumer.consumer_base import CLOSE_S, MS_PER_S, ConsumerBase, consumer_config
from barnabas.client.consumer.consumer_core import ConsumerCore
from barnabas.client.consumer.records.consumer_records import ConsumerRecords
from barnabas.client.fetch.offset_lookups import EARLIEST, LATEST
from barnabas.client.session.lifetime import ClosedByUser, WithBlock
from barnabas.client.session.session import Session
from barnabas.client.topic_partition import TopicPartition, as_partition
from barnabas.client.user_code import UserCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from barnabas.client.connections.metadata_cache import PartitionInfo
    from barnabas.client.fetch.offset_lookups import ListedOffset
    from barnabas.client.fetch.record_decoding import ConsumerRecord
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.group.membership import OnHostDone
    from barnabas.client.topic_partition import K

    Partition = tuple[str, int]
    Partitions = Partition | Iterable[Partition]

__all__ = ["Consumer"]


class Consumer(ClosedByUser, WithBlock, ConsumerBase):
    """Read records from topics. Use it in a `with` block, or call `close()`.

    Args:
        topics: Names of the topics to subscribe to at once.
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of "HOST:PORT" strings.
        config: Keys of Kafka's consumer with "_" for "."; `**{"group.id": "g"}` works too. In
            addition `key_deserializer` and `value_deserializer` (callables that take bytes; null
            stays None) and `interceptors` (a list of `ConsumerInterceptor`).

    Raises:
        ClientError: Any call may raise it or a subclass; the message says what to check.
        ClientConfigError: A config key is unknown or its value is invalid.
        ConcurrentUseError: Another thread is inside a call of this consumer.
    """

    def __init__(
        self, *topics: str, bootstrap_servers: str | Sequence[str] | None = None, **config: Any
    ) -> None:
        checked, parts = consumer_config(bootstrap_servers, config)
        self._session = session = Session(checked, "consumer")
        core = ConsumerCore(session.cluster, session.coordinators, parts, _run_callback)
        iterator = ConsumerIterator(core)
        self._calls = BlockingCalls(session, core, iterator)
        super().__init__(session.cluster, core, iterator, self._calls)
        if topics:
            self.subscribe(topics)
        self._watch(session.lifetime)

    # Closing

    def _close_at_exit(self, timeout: float) -> None:
        """Do nothing: a commit or a callback might not be what the user wants."""

    def close(self, timeout: float = CLOSE_S) -> None:
        """Commit (if automatic commits are on), leave the group and close all connections.

        Rebalance callbacks run as in a rebalance. If another thread is inside a call, that call
        first ends with `ClientClosedError`.

        Args:
            timeout: Limit in seconds.

        Raises:
            ConcurrentUseError: Another thread did not leave its call within the timeout.
            BaseException: A callback of the user raised this exception; the consumer is closed
                anyway.
        """
        self._calls.close(timeout * MS_PER_S)

    # Subscription

    def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group if the consumer is a member."""
        with self._calls as calls:
            calls.leave()

    def _end_subscription(self) -> None:
        self.unsubscribe()

    # Reading

    def poll(self, timeout: float = 0.0, *, max_records: int | None = None) -> ConsumerRecords:
        """Return the next records, up to max.poll.records; empty if none arrive within `timeout`.

        The positions move after the returned records, and the next fetch requests are sent before
        this method returns. Rebalances make progress and callbacks run only inside this and other
        calls.

        Args:
            timeout: Seconds to wait for records; 0 does not wait.
            max_records: The limit for this poll; None for max.poll.records.

        Returns:
            The records by partition.

        Raises:
            SubscriptionError: The consumer has neither a subscription nor an assignment.
            WakeupError: `wakeup` was called.
            NoOffsetError: There is no offset to start at, and auto.offset.reset=none.
            RecordDeserializationError: A deserializer raised; the position stays at its record.
            CorruptRecordsError: The next batch of a partition is corrupt. The position stays at the
                batch; the next polls continue with the other partitions.
        """
        limit = self._limit if max_records is None else max_records
        with self._calls as calls:
            core = self._core
            core.begin_poll()
            if core.membership is not None:
                self._session.stepper.keep_alive()
            deadline_ms = self._clock.monotonic_ms() + timeout * MS_PER_S
            has_time, begun = True, calls.closings
            try:
                while True:
                    calls.check_open(begun)
                    core.round()
                    records = core.take(limit)
                    if records is not None:
                        self._send(records)
                        return records
                    if not has_time:
                        return ConsumerRecords({}, {})
                    has_time = calls.wait(deadline_ms, begun)
            finally:
                core.metrics.on_poll_end()

    def _send(self, records: ConsumerRecords) -> None:
        """Let the event loop run from time to time, so that the next fetch requests are sent."""
        if not self._must_run_loop():
            return
        try:
            self._session.stepper.run_until(_never, 0)
        except BaseException:
            # Interrupted, for example by Ctrl-C: the user has not received the records.
            self._core.give_back({tp: len(part) for tp, part in records.items()})
            raise

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Iterate over records one by one, and wait for further records.

        The iteration ends when no record arrives within `consumer_timeout_ms`; by default it never
        ends. The position moves with each record, so a commit during the iteration covers exactly
        the records that were iterated.
        """
        return chain.from_iterable(self._polled())

    def __next__(self) -> ConsumerRecord:
        """Return the next record; see `__iter__`."""
        for record in self:
            return record
        raise StopIteration

    def _polled(self) -> Iterator[Iterator[ConsumerRecord]]:
        timeout, may_end = self._iteration_s(), self.config.consumer_timeout_ms >= 0
        iterator = self._iterator
        while True:
            if not iterator.has_rows:
                iterator.check()
                records = self.poll(timeout)
                if not records and may_end:
                    return
                iterator.begin(records)
            yield iterator.rows

    # Positions

    def position(self, partition: Partition, timeout: float | None = None) -> int:
        """Return the offset of the record that the next poll begins with.

        Args:
            partition: An assigned partition, as (topic, number).
            timeout: Seconds; None for default.api.timeout.ms.

        Raises:
            SubscriptionError: The partition is not assigned.
            ClientTimeoutError: The position was not found within the timeout.
        """
        tp = as_partition(partition)
        with self._calls as calls:
            state = self._core.subscription.partition(tp)
            calls.until(lambda: state.has_position, timeout, f"position of {tp}")
            return state.offset

    def seek_to_time(self, timestamp_ms: int, *partitions: Partitions) -> None:
        """Continue at the first record at or after a timestamp; at the end if there is none.

        Args:
            timestamp_ms: Timestamp in ms since the epoch.
            partitions: (topic, number) pairs; all assigned partitions if omitted.

        Raises:
            SubscriptionError: A partition is not assigned.
            ValueError: The timestamp is negative.
        """
        with self._calls as calls:
            calls.result(self._lookups.seek_to_time(timestamp_ms, partitions), "seek to a time")

    # Commits

    def commit(
        self,
        offsets: Mapping[K, int | CommittedOffset] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets and wait for the result (Java's commitSync).

        Args:
            offsets: For each partition the offset of the next record to read; None commits all
                positions.
            timeout: Seconds; None for default.api.timeout.ms.

        Raises:
            CommitFailedError: The group has assigned the partitions to other members.
            ClientTimeoutError: The commit did not succeed within the timeout.
            InvalidGroupIdError: `group.id` is missing.
        """
        with self._calls as calls:
            try:
                calls.result(self._lookups.commit(offsets, timeout), "commit", timeout)
            finally:
                self._core.commits.run_callbacks()

    def committed(
        self, partitions: Iterable[Partition], timeout: float | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the group's committed offsets of these partitions; None where there is none.

        Args:
            partitions: (topic, number) pairs.
            timeout: Seconds; None for default.api.timeout.ms.

        Raises:
            InvalidGroupIdError: `group.id` is missing.
        """
        with self._calls as calls:
            return calls.result(
                self._lookups.committed(partitions, timeout), "committed offsets", timeout
            )

    # Offsets and topics

    def beginning_offsets(
        self, partitions: Iterable[Partition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition.

        Args:
            partitions: (topic, number) pairs.
            timeout: Seconds; None for default.api.timeout.ms.
        """
        with self._calls as calls:
            return calls.result(
                self._lookups.ends(partitions, EARLIEST, timeout), "offsets", timeout
            )

    def end_offsets(
        self, partitions: Iterable[Partition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the end offset of each partition: the offset after the last visible record.

        With isolation.level=read_committed this is the last stable offset.

        Args:
            partitions: (topic, number) pairs.
            timeout: Seconds; None for default.api.timeout.ms.
        """
        with self._calls as calls:
            return calls.result(self._lookups.ends(partitions, LATEST, timeout), "offsets", timeout)

    def offsets_for_times(
        self, timestamps: Mapping[K, int], timeout: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Return for each partition the first record at or after a timestamp, or None.

        Args:
            timestamps: Timestamps in ms since the epoch, by partition.
            timeout: Seconds; None for default.api.timeout.ms.

        Returns:
            Offset, timestamp and leader epoch by partition; None where no record is that recent.

        Raises:
            ValueError: A timestamp is negative.
        """
        with self._calls as calls:
            return calls.result(self._lookups.times(timestamps, timeout), "offsets", timeout)

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """Return the partitions of a topic, with leaders and replicas.

        Args:
            topic: Name of the topic.
            timeout: Seconds; None for default.api.timeout.ms.

        Raises:
            UnknownTopicError: The topic does not exist.
        """
        with self._calls as calls:
            return calls.result(
                self._lookups.partitions(topic, timeout), f"partitions of {topic}", timeout
            )

    def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """Return all topics that this principal may describe, with their partitions."""
        with self._calls as calls:
            return calls.result(self._lookups.topics(timeout), "list of topics", timeout)


def _run_callback(call: Callable[[], object], on_done: OnHostDone) -> None:
    """Run the user's callback at once, on the calling thread."""
    with UserCode() as code:
        call()
    on_done(code.error)


def _never() -> bool:
    return False
