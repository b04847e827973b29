"""`barnabas.Consumer`: the blocking consumer, with connections of its own.

Method names and config keys are those of Kafka's Java consumer in snake case. One thread at a time
may call it; `wakeup` and `close` may come from any. It has no thread of its own, unless it is in a
group: then one keeps the membership alive while the user is elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from barnabas.client.config import ClientConfig
from barnabas.client.consumer.blocking_calls import BlockingCalls
from barnabas.client.consumer.commits import as_offsets
from barnabas.client.consumer.consumer_core import ConsumerCore
from barnabas.client.consumer.consumer_iterator import ConsumerIterator
from barnabas.client.consumer.consumer_parts import take_consumer_parts
from barnabas.client.consumer.consumer_records import ConsumerRecords
from barnabas.client.consumer.lookups import Lookups, flat_partitions, listing_specs
from barnabas.client.consumer.offset_reset import OffsetReset
from barnabas.client.consumer.subscription import Subscription
from barnabas.client.session import Session
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from barnabas.client.consumer.commits import CommitCallback
    from barnabas.client.consumer.rebalance_listener import RebalanceListener
    from barnabas.client.consumer.subscription import Topics
    from barnabas.client.group.membership import GroupGeneration, OnHostDone
    from barnabas.client.group_offsets import CommittedOffset
    from barnabas.client.list_offsets import ListedOffset
    from barnabas.client.metadata_cache import PartitionInfo
    from barnabas.client.record_decoding import ConsumedRecord

    Partition = tuple[str, int]
    Partitions = Partition | Iterable[Partition]

__all__ = ["Consumer"]

_MS_PER_S = 1000.0
_CLOSE_S = 30.0
# The loop has a turn at least so often while polls find enough in the buffer.
_TURN_MS = 5.0


class Consumer:
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
        parts, keys = take_consumer_parts(config)
        checked = ClientConfig.parse({"bootstrap.servers": bootstrap_servers, **keys})
        self.config = checked
        OffsetReset.parse(checked.auto_offset_reset)
        self._session = Session(checked, "consumer")
        session = self._session
        self._core = ConsumerCore(session.cluster, session.coordinators, parts, _run_callback)
        self._iterator = ConsumerIterator(self._core)
        self._calls = BlockingCalls(session, self._core, self._iterator)
        self._lookups = Lookups(session.cluster, self._core)
        self._limit = checked.max_poll_records
        self._clock = session.runtime.clock
        self._turned_ms = 0.0
        if topics:
            self.subscribe(topics)

    # Life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        return f"Consumer({servers!r}, group_id={self.config.group_id!r})"

    def close(self, timeout: float = _CLOSE_S) -> None:
        """Commit (if that is automatic), leave the group, close all connections.

        Callbacks run as in a rebalance. From another thread: a poll under way ends with
        `ClientClosedError` first.

        Raises:
            BaseException: what a callback of the user raised; it is closed all the same.
        """
        self._calls.close(timeout * _MS_PER_S)

    def wakeup(self) -> None:
        """Have the call that is under way, or the next one that waits, raise `WakeupError`.

        Safe from any thread, and from signal handlers.
        """
        self._core.is_wakeup_wanted = True
        self._session.stepper.wake()

    # What to read

    def subscribe(
        self,
        topics: Topics = None,
        listener: RebalanceListener | None = None,
        *,
        pattern: str | None = None,
    ) -> None:
        """Have the group give this consumer partitions of these topics; replaces what was before.

        Args:
            topics: names, a compiled `re` that is matched whole against all topics here, or a
                `SubscriptionPattern` that the broker matches. No names: as `unsubscribe`.
            listener: told of rebalances.
            pattern: a regular expression in place of topics.

        Raises:
            SubscriptionError: None, blank names, or partitions were assigned by hand.
            InvalidGroupIdError: no `group_id`.
        """
        wanted = Subscription.wanted(topics, pattern)
        if wanted == ():
            self.unsubscribe()
            return
        with self._calls:
            self._core.subscribe(wanted, listener)

    def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group if there is one."""
        with self._calls as calls:
            calls.leave()

    def assign(self, partitions: Iterable[Partition] | None) -> None:
        """Read exactly these (topic, partition), whatever any group says; none: `unsubscribe`.

        Raises:
            SubscriptionError: None, a blank topic, or topics are subscribed to.
        """
        wanted = None if partitions is None else [TopicPartition(*tp) for tp in partitions]
        if wanted == []:
            self.unsubscribe()
            return
        with self._calls:
            self._core.assign(wanted)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer has now."""
        with self._calls:
            return set(self._core.subscription.assignment)

    def subscription(self) -> set[str]:
        """The topics subscribed to, those that a pattern matched last included."""
        with self._calls:
            return set(self._core.subscription.topics)

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
        """
        limit = self._limit if max_records is None else max_records
        with self._calls as calls:
            core = self._core
            core.begin_poll()
            if core.membership is not None:
                self._session.stepper.keep_alive()
            deadline_ms = self._clock.monotonic_ms() + timeout * _MS_PER_S
            has_time = True
            try:
                while True:
                    calls.check_open()
                    core.round()
                    records = core.take(limit)
                    if records is not None:
                        self._send(records)
                        return records
                    if not has_time:
                        return ConsumerRecords({}, {})
                    has_time = calls.wait(deadline_ms)
            finally:
                core.metrics.on_poll_end()

    def _send(self, records: ConsumerRecords) -> None:
        """Let the loop have a turn now and then, so that the next fetches leave."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._turned_ms < _TURN_MS and not self._core.has_sent_fetches():
            return
        self._turned_ms = now_ms
        try:
            self._session.stepper.run_until(_never, 0)
        except BaseException:
            # Ctrl-C: what was taken has not reached the user.
            self._core.give_back({tp: len(part) for tp, part in records.items()})
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumedRecord:
        """The next record; waits for it, for ever unless `consumer_timeout_ms` is set.

        The position moves record by record: what is committed in between is what was iterated.
        """
        record = self._iterator.next()
        while record is None:
            limit_ms = self.config.consumer_timeout_ms
            records = self.poll(_CLOSE_S if limit_ms < 0 else limit_ms / _MS_PER_S)
            if not records and limit_ms >= 0:
                raise StopIteration
            self._iterator.begin(records)
            record = self._iterator.next()
        return record

    # Positions

    def position(self, partition: Partition, timeout: float | None = None) -> int:
        """Offset of the record that the next poll begins with.

        Raises:
            SubscriptionError: the partition is not assigned.
            ClientTimeoutError: it was not to be found out in time.
        """
        tp = TopicPartition(*partition)
        with self._calls as calls:
            position = self._core.subscription.position(tp)
            calls.until(lambda: position.has_position, timeout, f"position of {tp}")
            return position.offset

    def seek(self, partition: Partition, offset: int | CommittedOffset) -> None:
        """Go on at `offset` with the next poll.

        Raises:
            SubscriptionError: the partition is not assigned.
            ValueError: a negative offset.
        """
        [(tp, wanted)] = as_offsets({partition: offset}).items()
        with self._calls:
            self._core.positions.seek(tp, wanted.offset, wanted.leader_epoch)

    def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Go on at the first record there is, in these partitions or in all that are assigned."""
        self._reset(partitions, OffsetReset.earliest())

    def seek_to_end(self, *partitions: Partitions) -> None:
        """Go on behind the last record, in these partitions or in all that are assigned."""
        self._reset(partitions, OffsetReset.latest())

    def _reset(self, partitions: Iterable[Partitions], reset: OffsetReset) -> None:
        with self._calls:
            for tp in flat_partitions(partitions) or list(self._core.subscription.assignment):
                self._core.positions.reset(tp, reset)

    def seek_to_time(self, timestamp_ms: int, *partitions: Partitions) -> None:
        """Go on at the first record as late as that; at the end where there is none."""
        wanted = flat_partitions(partitions) or sorted(self.assignment())
        with self._calls as calls:
            for tp in wanted:
                self._core.subscription.position(tp)
            found = calls.result(self._lookups.offsets(dict.fromkeys(wanted, timestamp_ms)), "seek")
            for tp, listed in found.items():
                if listed.offset < 0:
                    self._core.positions.reset(tp, OffsetReset.latest())
                else:
                    self._core.positions.seek(tp, listed.offset)

    def pause(self, *partitions: Partitions) -> None:
        """Give nothing of these out until `resume`; the assignment stays."""
        with self._calls:
            self._core.pause(flat_partitions(partitions))

    def resume(self, *partitions: Partitions) -> None:
        """Undo `pause`."""
        with self._calls:
            self._core.resume(flat_partitions(partitions))

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        with self._calls:
            return self._core.paused()

    # Commits

    def commit(
        self,
        offsets: Mapping[Partition, int | CommittedOffset] | None = None,
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
            calls.commit(None if offsets is None else as_offsets(offsets), timeout)

    def commit_async(
        self,
        offsets: Mapping[Partition, int | CommittedOffset] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting, and without trying again.

        Args:
            offsets: as for `commit`.
            callback: called with (offsets, error or None) within a later call; in order.
        """
        with self._calls:
            self._core.commit_async(None if offsets is None else as_offsets(offsets), callback)

    def committed(
        self, partitions: Iterable[Partition], timeout: float | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed for these partitions, None where it has nothing."""
        wanted = [TopicPartition(*tp) for tp in partitions]
        with self._calls as calls:
            start = self._lookups.committed(wanted, timeout)
            found = calls.result(start, "committed offsets")
            return {tp: found.get(tp) for tp in wanted}

    def enforce_rebalance(self, reason: str = "the user asked for it") -> None:
        """Have the group's members join anew with the next poll."""
        with self._calls:
            if self._core.membership is not None:
                self._core.membership.request_rejoin(reason)

    def group_metadata(self) -> GroupGeneration:
        """Who this consumer is in its group: for `send_offsets_to_transaction`."""
        with self._calls:
            return self._core.generation

    # Offsets and topics

    def beginning_offsets(
        self, partitions: Iterable[Partition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._ends(partitions, "earliest", timeout)

    def end_offsets(
        self, partitions: Iterable[Partition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record of each, with read_committed behind the last stable."""
        return self._ends(partitions, "latest", timeout)

    def _ends(
        self, partitions: Iterable[Partition], which: str, timeout: float | None
    ) -> dict[TopicPartition, int]:
        with self._calls as calls:
            specs = listing_specs(dict.fromkeys(partitions, which))
            found = calls.result(self._lookups.offsets(specs, timeout), "offsets")
            return {tp: listed.offset for tp, listed in found.items()}

    def offsets_for_times(
        self, timestamps: Mapping[Partition, int], timeout: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """For each partition the first record as late as a time in ms, None where there is none."""
        with self._calls as calls:
            specs = listing_specs(timestamps)
            found = calls.result(self._lookups.offsets(specs, timeout), "offsets")
            return {tp: None if at.offset < 0 else at for tp, at in found.items()}

    def current_lag(self, partition: Partition) -> int | None:
        """Records behind the position as of the last fetch; None while that is not known."""
        with self._calls:
            return self._core.lag(TopicPartition(*partition))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic, with leaders and replicas.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        with self._calls as calls:
            return calls.result(self._lookups.partitions(topic, timeout), f"partitions of {topic}")

    def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics that this user may see, with their partitions."""
        with self._calls as calls:
            return calls.result(self._lookups.topics(timeout), "list of topics")

    def metrics(self) -> dict[str, dict[str, float]]:
        """Kafka's consumer metrics by group and name."""
        with self._calls:
            return self._core.metrics.report(self._core.lags())


def _run_callback(call: Callable[[], object], on_done: OnHostDone) -> None:
    """Run the user's code here and now."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything; poll raises it
        on_done(error)
        return
    on_done(None)


def _never() -> bool:
    return False
