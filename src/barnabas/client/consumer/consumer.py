"""`barnabas.Consumer`: the blocking consumer, with its own connections.

Method names and config keys are those of Kafka's Java consumer, in snake case. Only one thread at a
time may call the consumer; `wakeup` and `close` are safe from any thread. A consumer in a group has
one background thread that keeps the membership alive between calls. A consumer without a group has
no thread.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.consumer.consumer_base import CLOSE_S, MS_PER_S, ConsumerBase, consumer_config
from barnabas.client.consumer.consumer_calls import ConsumerCalls, ConsumerIterator
from barnabas.client.consumer.consumer_core import ConsumerCore
from barnabas.client.consumer.consumer_records import ConsumerRecords
from barnabas.client.consumer.errors import ConcurrentUseError
from barnabas.client.session.lifetime import ClosedByUser, WithBlock
from barnabas.client.session.plans import RunsPlans, run_plan
from barnabas.client.session.session import Session
from barnabas.client.user_code import UserCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.client.group.membership import OnHostDone
    from barnabas.client.session.plans import Until, WaitingPlan

    Partition = tuple[str, int]
    Partitions = Partition | Iterable[Partition]

__all__ = ["Consumer"]

T = TypeVar("T")


class BlockingCalls(ConsumerCalls):
    """Entry, waiting and closing of the blocking consumer. Calls made by callbacks may nest."""

    __slots__ = ("_deferred_close_ms", "_session")

    def __init__(self, session: Session, core: ConsumerCore, iterator: ConsumerIterator) -> None:
        super().__init__(session.cluster, core, iterator)
        self._session = session
        # The timeout (ms) of a `close` that was called inside another call, for example by a
        # callback. The outermost call closes the consumer when it ends. None if no close is
        # pending.
        self._deferred_close_ms: float | None = None

    def _begin(self) -> None:
        self._session.check_usable()
        if not self._session.stepper.enter():
            raise ConcurrentUseError(
                "another thread is in a call of this consumer: one thread at a time may use it, "
                "except for wakeup() and close()"
            )

    def _end(self) -> None:
        stepper = self._session.stepper
        stepper.leave()
        if self._deferred_close_ms is not None and not stepper.is_inside:
            self.close(self._deferred_close_ms)

    def wait(self, deadline_ms: float, begun: int) -> bool:
        """Wait for an event, see `event_before`; return whether there is time left."""
        self.until(self.event_before(deadline_ms, begun))
        return self.clock.monotonic_ms() < deadline_ms

    def until(self, step: Until) -> bool:
        """Perform a step of a plan."""
        return self._session.stepper.run_until(step.condition, step.limit_ms)

    def wakeup(self) -> None:
        """Make a waiting call check its condition again. Safe from any thread."""
        self._session.stepper.wake()

    def close(self, timeout_ms: float) -> None:
        """Close the consumer, from any thread.

        If the current thread is inside a call of this consumer, the close takes place when that
        call ends.

        Raises:
            ConcurrentUseError: Another thread did not leave its call within the timeout.
            BaseException: A callback of the user raised this exception.
        """
        session = self._session
        if session.lifetime.is_closed or session.lifetime.is_forked:
            session.close()
            return
        self.closings += 1
        if session.stepper.is_inside:
            self._deferred_close_ms = timeout_ms
            session.stepper.wake()
            return
        session.stepper.wake()
        if not session.stepper.enter(wait_ms=timeout_ms):
            raise ConcurrentUseError("close: another thread does not leave its call")
        try:
            if not session.lifetime.is_closed:
                self._close(timeout_ms)
        finally:
            session.stepper.leave()

    def _close(self, timeout_ms: float) -> None:
        try:
            run_plan(self.close_core(timeout_ms), self.until)
        finally:
            self._session.close()
        self.raise_callback_error()


class Consumer(ClosedByUser, WithBlock, ConsumerBase, RunsPlans):
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
        super().__init__(core, iterator, self._calls)
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

    def _run_plan(self, plan: Callable[..., WaitingPlan[T]], *args: Any, **kwargs: Any) -> T:
        with self._calls as calls:
            return run_plan(plan(calls, *args, **kwargs), calls.until)

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
            self._core.collector.give_back({tp: len(part) for tp, part in records.items()})
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


def _run_callback(call: Callable[[], object], on_done: OnHostDone) -> None:
    """Run the user's callback at once, on the calling thread."""
    with UserCode() as code:
        call()
    on_done(code.error)


def _never() -> bool:
    return False
