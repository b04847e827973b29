"""Base of the blocking and the asyncio share consumer: all calls but those that read records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from barnabas.client.config import ClientConfig, keys_with_servers
from barnabas.client.consumer.errors import InvalidGroupIdError
from barnabas.client.consumer.user_objects import take_user_objects
from barnabas.client.errors import ClientConfigError
from barnabas.client.session.plans import PlanMethod, Until
from barnabas.client.share import share_consumer_plans
from barnabas.client.share.acknowledgements import AcknowledgeType
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from barnabas.client.consumer.user_objects import Deserializing
    from barnabas.client.errors import ClientError
    from barnabas.client.share.acknowledgements import AcknowledgementCallback
    from barnabas.client.share.acquired_records import ShareRecord
    from barnabas.client.share.share_consumer_core import ShareConsumerCore
    from barnabas.runtime.clock import Clock

__all__ = ["CLOSE_S", "MS_PER_S", "ShareConsumerBase", "share_consumer_config"]

# The keys that Kafka's share consumer refuses. Either the group's configuration decides the matter,
# or it does not exist in share groups.
_REFUSED = (
    "auto_offset_reset",
    "enable_auto_commit",
    "group_instance_id",
    "isolation_level",
    "partition_assignment_strategy",
    "interceptor_classes",
    "interceptors",
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "group_protocol",
    "group_remote_assignor",
)
MS_PER_S = 1000.0
# Default timeout of `close` (s).
CLOSE_S = 30.0
# Lower limit of a wait (ms) while the user's timeout has not passed. It prevents a busy loop when a
# deadline is already due.
_SHORTEST_MS = 1.0


def share_consumer_config(
    bootstrap_servers: str | Sequence[str] | None,
    given: Mapping[str, Any],
    *,
    may_block: bool = True,
) -> tuple[ClientConfig, Deserializing]:
    """Return a share consumer's keyword arguments as a checked config and its deserializers.

    Args:
        bootstrap_servers: As given to the consumer.
        given: All other keyword arguments.
        may_block: Whether deserializers may block; see `take_user_objects`.

    Raises:
        ClientConfigError: A key is unknown or not supported by share consumers, or its value is
            invalid.
        InvalidGroupIdError: `group.id` is missing or blank.
    """
    refused = sorted(key for key in given if key.replace(".", "_") in _REFUSED)
    if refused:
        names = ", ".join(refused)
        raise ClientConfigError(
            f"share consumers do not support {names}: leave it out. Configs of the group decide "
            f"where reading starts and which isolation level applies (share.auto.offset.reset, "
            f"share.isolation.level)"
        )
    objects, keys = take_user_objects(given, may_block=may_block)
    config = ClientConfig.parse(keys_with_servers(bootstrap_servers, keys))
    if config.group_id is None or not config.group_id.strip():
        key = config.spell("group_id")
        raise InvalidGroupIdError(f"{key} is missing or blank: a share consumer needs a group")
    return config, objects.deserializing


class ShareConsumerBase(ABC):
    """Base of `barnabas.ShareConsumer` and `barnabas.aio.ShareConsumer`."""

    def __init__(self, core: ShareConsumerCore, clock: Clock) -> None:
        # The validated configuration.
        self.config = core.config
        self._core = core
        self._clock = clock

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        return f"ShareConsumer({servers!r}, group_id={self.config.group_id!r})"

    # How calls begin and wait

    @abstractmethod
    def _enter(self) -> None:
        """Begin a call; raise an error if the consumer is closed or in use."""

    @abstractmethod
    def _leave(self) -> None:
        """End the call."""

    @abstractmethod
    def _interrupt(self) -> None:
        """Make a waiting call check its condition again. Safe from any thread."""

    @contextmanager
    def _call(self) -> Iterator[ShareConsumerCore]:
        self._enter()
        try:
            self._core.results.check_outside()
            yield self._core
        finally:
            self._leave()

    def _event_before(self, deadline_ms: float) -> Until:
        """Return a step that waits for an event or a wake-up, until the deadline."""
        core, now_ms, limit_ms = self._core, self._clock.monotonic_ms(), 0.0
        if now_ms < deadline_ms:
            due_ms = core.next_deadline_ms() - now_ms
            limit_ms = min(deadline_ms - now_ms, max(due_ms, _SHORTEST_MS))
        return Until(lambda: core.is_awake or core.is_wakeup_wanted, limit_ms)

    def _iteration_s(self) -> float:
        """Return how long (s) one poll of an iteration waits for records."""
        limit_ms = self.config.consumer_timeout_ms
        return CLOSE_S if limit_ms < 0 else limit_ms / MS_PER_S

    def wakeup(self) -> None:
        """Make the current call, or the next call that waits, raise `WakeupError`.

        Safe from any thread and from signal handlers.
        """
        self._core.is_wakeup_wanted = True
        self._interrupt()

    # Subscription

    subscribe = PlanMethod(share_consumer_plans.subscribe)
    unsubscribe = PlanMethod(share_consumer_plans.unsubscribe)

    def subscription(self) -> set[str]:
        """Return the subscribed topics."""
        with self._call() as core:
            return set(core.subscription.topics)

    # Acknowledgements

    def acknowledge(
        self, record: ShareRecord, acknowledge_type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledge a record of the last poll; the next poll or commit sends it to the broker.

        Until then, a later call replaces the type. This needs
        `share.acknowledgement.mode=explicit`.

        Args:
            record: A record that the last poll returned.
            acknowledge_type: ACCEPT, RELEASE (deliver it again), REJECT (do not deliver it again),
                or RENEW (extend the acquisition lock; the next poll returns the record again).

        Raises:
            IllegalAcknowledgementError: The mode is implicit, or the record is not waiting to be
                acknowledged.
        """
        tp = TopicPartition(record.topic, record.partition)
        kind = AcknowledgeType(acknowledge_type)
        with self._call() as core:
            core.acknowledge(tp, record.offset, kind, is_by_offset=False)

    def acknowledge_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        acknowledge_type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """Acknowledge a record by its offset, even if the last poll could not read the record.

        Without this call, records that cannot be deserialized are released, and corrupt batches are
        rejected.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            offset: Offset of the record; `RecordDeserializationError` has it as `offset`.
            acknowledge_type: As for `acknowledge`.

        Raises:
            IllegalAcknowledgementError: The mode is implicit, or the record is not waiting to be
                acknowledged.
        """
        tp = TopicPartition(topic, partition)
        kind = AcknowledgeType(acknowledge_type)
        with self._call() as core:
            core.acknowledge(tp, offset, kind, is_by_offset=True)

    commit_sync = PlanMethod(share_consumer_plans.commit_sync)

    def commit_async(self) -> None:
        """Send the acknowledgements without waiting for the result.

        In implicit mode, the records of the last poll are accepted. The callback of
        `set_acknowledgement_commit_callback` receives the results.
        """
        with self._call() as core:
            core.commit()

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Set the function that receives results of acknowledgements.

        Args:
            callback: Called with the offsets by partition and an error or None, inside later calls
                of this consumer. It may call only `wakeup`. None removes the callback.
        """
        with self._call() as core:
            core.results.callback = callback

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Return for how long (ms) acquired records are locked; None before the first records."""
        with self._call() as core:
            return core.fetcher.lock_timeout_ms

    client_instance_id = PlanMethod(share_consumer_plans.client_instance_id)

    @property
    def trouble(self) -> ClientError | None:
        """Why no records arrive: the error of a broker that does not respond; None if unknown.

        Polls keep retrying.
        """
        with self._call() as core:
            return core.trouble
