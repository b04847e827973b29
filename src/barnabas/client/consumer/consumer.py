"""`barnabas.Consumer`: the blocking consumer, with connections of its own.

Method names and config keys are those of Kafka's Java consumer in snake case. One thread at a time
may call it; `wakeup` and `close` may come from any. It has no thread of its own, unless it is in a
group: then one keeps the membership alive while the user is elsewhere.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from barnabas.client.consumer.blocking_calls import BlockingCalls
from barnabas.client.consumer.consumer_core import ConsumerCore
from barnabas.client.consumer.consumer_face import CLOSE_S, MS_PER_S, ConsumerFace, consumer_config
from barnabas.client.consumer.consumer_iterator import ConsumerIterator
from barnabas.client.consumer.consumer_records import ConsumerRecords
from barnabas.client.group.user_code import UserCode
from barnabas.client.list_offsets import EARLIEST, LATEST
from barnabas.client.session import Session
from barnabas.client.topic_partition import TopicPartition, as_partition
from barnabas.client.with_block import WithBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from barnabas.client.group.membership import OnHostDone
    from barnabas.client.group_offsets import CommittedOffset
    from barnabas.client.list_offsets import ListedOffset
    from barnabas.client.metadata_cache import PartitionInfo
    from barnabas.client.record_decoding import ConsumerRecord
    from barnabas.client.topic_partition import K

    Partition = tuple[str, int]
    Partitions = Partition | Iterable[Partition]

__all__ = ["Consumer"]


class Consumer(WithBlock, ConsumerFace):
    """Reads records. Use it in a `with` block, or call `close()`.

    Args:
        topics: names to subscribe to at once.
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of them.
        config: keys of Kafka's consumer with "_" for "."; `**{"group.id": "g"}` works too. Beside
            them `key_deserializer` and `value_deserializer` (functions of bytes; null stays None)
            and `interceptors` (a list of `ConsumerInterceptor`).

    Every call raises `ClientError` and its subclasses, whose messages say what to check;
    `ConcurrentUseError` when another thread is in a call.
    """

    def __init__(self, *topics: str, bootstrap_servers: str | Sequence[str], **config: Any) -> None:
        checked, parts = consumer_config(bootstrap_servers, config)
        self._session = session = Session(checked, "consumer")
        core = ConsumerCore(session.cluster, session.coordinators, parts, _run_callback)
        iterator = ConsumerIterator(core)
        self._calls = BlockingCalls(session, core, iterator)
        super().__init__(session.cluster, core, iterator, self._calls)
        if topics:
            self.subscribe(topics)

    # Life

    def close(self, timeout: float = CLOSE_S) -> None:
        """Commit (if that is automatic), leave the group, close all connections.

        Callbacks run as in a rebalance. From another thread: a poll under way ends with
        `ClientClosedError` first.

        Raises:
            BaseException: what a callback of the user raised; it is closed all the same.
        """
        self._calls.close(timeout * MS_PER_S)

    # What to read

    def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group if there is one."""
        with self._calls as calls:
            calls.leave()

    def _end_subscription(self) -> None:
        self.unsubscribe()

    # Reading

    def poll(self, timeout: float = 0.0, *, max_records: int | None = None) -> ConsumerRecords:
        """The next records, up to max.poll.records; none if none came within `timeout` seconds.

        The position moves behind them, and the next fetches are on their way when this returns.
        Rebalances go on in here, and callbacks run.

        Raises:
            SubscriptionError: nothing is subscribed to or assigned.
            WakeupError: `wakeup` was called.
            NoOffsetError: no offset to begin at, with auto.offset.reset=none.
            RecordDeserializationError: a deserializer raised; the position stays at its record.
            CorruptRecordsError: the next batch of a partition is corrupt; the position stays there,
                and the other partitions are read on with the next polls.
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
        """Let the loop have a turn now and then, so that the next fetches leave."""
        if not self._takes_turn():
            return
        try:
            self._session.stepper.run_until(_never, 0)
        except BaseException:
            # Ctrl-C: what was taken has not reached the user.
            self._core.give_back({tp: len(part) for tp, part in records.items()})
            raise

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record by record; waits for them, for ever unless `consumer_timeout_ms` is set.

        The position moves record by record: what is committed in between is what was iterated.
        """
        return chain.from_iterable(self._polled())

    def __next__(self) -> ConsumerRecord:
        """The next record, as in an iteration."""
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
        """Offset of the record that the next poll begins with.

        Raises:
            SubscriptionError: the partition is not assigned.
            ClientTimeoutError: it was not to be found out in time.
        """
        tp = as_partition(partition)
        with self._calls as calls:
            position = self._core.subscription.position(tp)
            calls.until(lambda: position.has_position, timeout, f"position of {tp}")
            return position.offset

    def seek_to_time(self, timestamp_ms: int, *partitions: Partitions) -> None:
        """Go on at the first record as late as that; at the end where there is none.

        Raises:
            SubscriptionError: a partition is not assigned.
        """
        with self._calls as calls:
            calls.result(self._lookups.seek_to_time(timestamp_ms, partitions), "seek to a time")

    # Commits

    def commit(
        self,
        offsets: Mapping[K, int | CommittedOffset] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Commit, and wait until it is done (Java's commitSync).

        Args:
            offsets: the next ones to be read; None for where all positions are.
            timeout: seconds; None for default.api.timeout.ms.

        Raises:
            CommitFailedError: the group has given the partitions to others.
            ClientTimeoutError: not within the time-out.
        """
        with self._calls as calls:
            try:
                calls.result(self._lookups.commit(offsets, timeout), "commit", timeout)
            finally:
                self._core.commits.run_callbacks()

    def committed(
        self, partitions: Iterable[Partition], timeout: float | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed for these partitions, None where it has nothing."""
        with self._calls as calls:
            return calls.result(
                self._lookups.committed(partitions, timeout), "committed offsets", timeout
            )

    # Offsets and topics

    def beginning_offsets(
        self, partitions: Iterable[Partition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        with self._calls as calls:
            return calls.result(
                self._lookups.ends(partitions, EARLIEST, timeout), "offsets", timeout
            )

    def end_offsets(
        self, partitions: Iterable[Partition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record of each, with read_committed behind the last stable."""
        with self._calls as calls:
            return calls.result(self._lookups.ends(partitions, LATEST, timeout), "offsets", timeout)

    def offsets_for_times(
        self, timestamps: Mapping[K, int], timeout: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """For each partition the first record as late as a time in ms, None where there is none."""
        with self._calls as calls:
            return calls.result(self._lookups.times(timestamps, timeout), "offsets", timeout)

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic, with leaders and replicas.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        with self._calls as calls:
            return calls.result(
                self._lookups.partitions(topic, timeout), f"partitions of {topic}", timeout
            )

    def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics that this user may see, with their partitions."""
        with self._calls as calls:
            return calls.result(self._lookups.topics(timeout), "list of topics", timeout)


def _run_callback(call: Callable[[], object], on_done: OnHostDone) -> None:
    """Run the user's code here and now."""
    with UserCode() as code:
        call()
    on_done(code.error)


def _never() -> bool:
    return False
