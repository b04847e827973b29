"""`barnabas.ShareConsumer`: the blocking share consumer, with its own connections (KIP-932).

Method names and config keys are those of Kafka's Java share consumer, in snake case. Only one
thread at a time may call the consumer; `wakeup` is safe from any thread. One background thread
keeps the membership alive between calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.consumer.errors import ConcurrentUseError
from barnabas.client.session.lifetime import ClosedByUser, WithBlock
from barnabas.client.session.plans import RunsPlans, run_plan
from barnabas.client.session.session import Session
from barnabas.client.share import share_consumer_plans
from barnabas.client.share.acquired_records import ShareRecords
from barnabas.client.share.share_consumer_base import (
    CLOSE_S,
    MS_PER_S,
    ShareConsumerBase,
    share_consumer_config,
)
from barnabas.client.share.share_consumer_core import ShareConsumerCore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.client.session.plans import Until, WaitingPlan
    from barnabas.client.share.acquired_records import ShareRecord

__all__ = ["ShareConsumer"]

T = TypeVar("T")


class ShareConsumer(ClosedByUser, WithBlock, ShareConsumerBase, RunsPlans):
    """Acquire records of topics together with other members of a share group.

    Each record is acknowledged on its own, and several members may read one partition. Use the
    consumer in a `with` block, or call `close()`.

    Args:
        topics: Names of the topics to subscribe to at once.
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of "HOST:PORT" strings.
        config: Keys of Kafka's share consumer with "_" for "."; `**{"group.id": "g"}` works too.
            In addition `key_deserializer` and `value_deserializer` (callables that take bytes; null
            stays None).

    Raises:
        ClientError: Any call may raise it or a subclass; the message says what to check.
        ClientConfigError: A config key is unknown or not supported, or its value is invalid.
        ConcurrentUseError: Another thread is inside a call of this consumer.
    """

    def __init__(
        self, *topics: str, bootstrap_servers: str | Sequence[str] | None = None, **config: Any
    ) -> None:
        checked, deserializing = share_consumer_config(bootstrap_servers, config)
        self._session = session = Session(checked, "share consumer")
        core = ShareConsumerCore(session.cluster, session.coordinators, deserializing)
        super().__init__(core, session.runtime.clock)
        if topics:
            self.subscribe(topics)
        self._watch(session.lifetime)

    def _close_at_exit(self, timeout: float) -> None:
        """Do nothing: the brokers release the records when the session times out."""

    def _enter(self) -> None:
        self._session.check_usable()
        if not self._session.stepper.enter():
            raise ConcurrentUseError(
                "another thread is in a call of this consumer: one thread at a time may use it, "
                "except for wakeup()"
            )

    def _leave(self) -> None:
        self._session.stepper.leave()

    def _interrupt(self) -> None:
        self._session.stepper.wake()

    def _run_plan(self, plan: Callable[..., WaitingPlan[T]], *args: Any, **kwargs: Any) -> T:
        with self._call() as core:
            return run_plan(plan(core, *args, **kwargs), self._until)

    def _until(self, step: Until) -> bool:
        return self._session.stepper.run_until(step.condition, step.limit_ms)

    # Reading

    def poll(self, timeout: float = 0.0) -> ShareRecords:
        """Return acquired records; empty if none arrive within `timeout`.

        In implicit mode, the records of the previous poll are accepted first. In explicit mode,
        they must all be acknowledged.

        Args:
            timeout: Seconds to wait for records; 0 does not wait.

        Returns:
            The records by partition: about max.poll.records, but always whole batches.

        Raises:
            IllegalAcknowledgementError: In explicit mode, records are not acknowledged.
            SubscriptionError: The consumer has no subscription.
            WakeupError: `wakeup` was called.
            RecordDeserializationError: A deserializer raised; the record is released.
            CorruptRecordsError: A batch is corrupt; its records are rejected.
        """
        with self._call() as core:
            self._session.stepper.keep_alive()
            core.begin_poll()
            deadline_ms = self._clock.monotonic_ms() + timeout * MS_PER_S
            has_time = True
            try:
                while True:
                    core.round()
                    records = core.take(self.config.max_poll_records)
                    if records is not None:
                        return records
                    if not has_time:
                        return ShareRecords({})
                    self._until(self._event_before(deadline_ms))
                    has_time = self._clock.monotonic_ms() < deadline_ms
            finally:
                core.end_poll()

    def __iter__(self) -> Iterator[ShareRecord]:
        """Iterate over records one by one, and wait for further records.

        The iteration ends when no record arrives within `consumer_timeout_ms`; by default it never
        ends. In implicit mode, a commit during the iteration accepts exactly the records that were
        iterated.
        """
        timeout, may_end = self._iteration_s(), self.config.consumer_timeout_ms >= 0
        while True:
            record = self._core.next_row()
            if record is not None:
                yield record
                continue
            records = self.poll(timeout)
            if not records and may_end:
                return
            self._core.begin_rows(records)

    # Closing

    def close(self, timeout: float = CLOSE_S) -> None:
        """Send pending acknowledgements, release all other records, leave the group and close.

        Records that were not acknowledged are released: in implicit mode, those of the last poll.
        Call `commit_sync` first to accept them.

        Args:
            timeout: Limit in seconds.

        Raises:
            BaseException: The acknowledgement commit callback raised this exception; the consumer
                is closed anyway.
        """
        session = self._session
        if session.lifetime.is_closed or session.lifetime.is_forked:
            session.close()
            return
        with self._call() as core:
            try:
                run_plan(share_consumer_plans.close(core, timeout * MS_PER_S), self._until)
            finally:
                session.close()
