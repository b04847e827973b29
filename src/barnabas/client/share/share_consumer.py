"""`barnabas.ShareConsumer`: the blocking share consumer, with its own connections (KIP-932).

Method names and config keys are those of Kafka's Java share consumer, in snake case. Only one
thread at a time may call the consumer; `wakeup` is safe from any thread. One background thread
keeps the membership alive between calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.client.consumer.calls.consumer_calls import outcome_of
from barnabas.client.consumer.errors import ConcurrentUseError
from barnabas.client.errors import ClientTimeoutError
from barnabas.client.session.lifetime import ClosedByUser, WithBlock
from barnabas.client.session.session import Session
from barnabas.client.share.acquired_records import ShareRecords
from barnabas.client.share.share_consumer_base import (
    CLOSE_S,
    MS_PER_S,
    ShareConsumerBase,
    share_consumer_config,
)
from barnabas.client.share.share_consumer_core import ShareConsumerCore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from barnabas.client.errors import ClientError
    from barnabas.client.share.acquired_records import ShareRecord
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["ShareConsumer"]


class ShareConsumer(ClosedByUser, WithBlock, ShareConsumerBase):
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

    def _run_until(self, is_over: Callable[[], bool], timeout_ms: float) -> None:
        """Run the event loop until `is_over`, and at most for `timeout_ms`."""
        self._session.stepper.run_until(is_over, timeout_ms)

    # Subscription

    def subscribe(self, topics: Iterable[str] | str) -> None:
        """Subscribe to topics; replace earlier topics. The next poll joins the group.

        Args:
            topics: One name or several. An empty collection means `unsubscribe`.

        Raises:
            SubscriptionError: The topics are None, a pattern, or a name is blank.
        """
        names = self._topic_names(topics)
        with self._call() as core:
            if names:
                core.subscribe(names)
            else:
                self.unsubscribe()

    def unsubscribe(self) -> None:
        """Leave the group: send pending acknowledgements, and release all other records."""
        with self._call():
            self._end_membership(self.config.default_api_timeout_ms)

    def _end_membership(self, timeout_ms: float) -> None:
        ended: list[bool] = []
        self._core.leave(lambda: ended.append(True))
        self._run_until(lambda: bool(ended), timeout_ms)
        if not ended:
            self._core.abandon()

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
                    self._run_until(
                        lambda: core.is_awake or core.is_wakeup_wanted, self._wait_ms(deadline_ms)
                    )
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

    # Acknowledgements

    def commit_sync(self, timeout: float | None = None) -> dict[TopicPartition, ClientError | None]:
        """Send the acknowledgements and wait for the results.

        In implicit mode, the records of the last poll are accepted.

        Args:
            timeout: Seconds; None for default.api.timeout.ms.

        Returns:
            For each partition with acknowledgements its error, or None if they succeeded; a
            `ClientTimeoutError` if the result did not arrive in time.

        Raises:
            WakeupError: `wakeup` was called; the results go to the callback.
        """
        with self._call() as core:
            commit = core.commit()
            timeout_ms = self._timeout_ms(timeout)
            self._run_until(lambda: commit.is_done or core.is_wakeup_wanted, timeout_ms)
            if not commit.is_done:
                core.check_wakeup()
            core.run_callbacks()
            return commit.results(timeout_ms)

    # Client instance, closing

    def client_instance_id(self, timeout: float | None = None) -> str:
        """Return the id that the brokers use for this client's telemetry (KIP-714).

        Args:
            timeout: Seconds; None for default.api.timeout.ms.

        Raises:
            UnsupportedVersionError: The brokers do not collect client telemetry.
            ClientTimeoutError: No broker responded in time.
        """
        with self._call() as core:
            outcomes: list[tuple[str | None, ClientError | None]] = []
            core.client_instance_id(lambda found, error: outcomes.append((found, error)))
            timeout_ms = self._timeout_ms(timeout)
            self._run_until(lambda: bool(outcomes) or core.is_wakeup_wanted, timeout_ms)
            if not outcomes:
                core.check_wakeup()
                raise ClientTimeoutError(f"no broker responded within {timeout_ms:.0f} ms")
            return outcome_of(outcomes[0])

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
                self._end_membership(timeout * MS_PER_S)
                core.run_callbacks()
            finally:
                core.stop()
                session.close()
