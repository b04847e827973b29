"""The core of both share consumers: no thread, no await and no waiting (KIP-932).

A consumer class calls `round` and `take` until there are records or its timeout passes. In between
it waits until `is_awake`, which callbacks on the event loop set. Callbacks of the user run only in
`results.run`, which this core and the consumer class call.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.connections.cluster import ANY_NODE
from barnabas.client.connections.connections import Call
from barnabas.client.consumer.assignment.subscription import (
    SubscribedTopics,
    Subscription,
    SubscriptionKind,
)
from barnabas.client.consumer.errors import SubscriptionError, WakeupError
from barnabas.client.errors import broker_error
from barnabas.client.share.acknowledgements import (
    AcknowledgementResults,
    IllegalAcknowledgementError,
    ShareCommit,
)
from barnabas.client.share.acquired_records import (
    Decoding,
    InFlightRecords,
    ShareRecord,
    ShareRecords,
)
from barnabas.client.share.share_fetcher import ShareFetcher, ShareFetchListener
from barnabas.client.share.share_membership import ShareMembership, ShareMembershipHost
from barnabas.client.share.share_session import AckGroup, ShareRequests
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.connection import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.primitives import uuid_to_string

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.lookups import Coordinators
    from barnabas.client.consumer.user_objects import Deserializing
    from barnabas.client.errors import ClientError
    from barnabas.client.retries import OnDone
    from barnabas.client.share.acknowledgements import Acknowledgements, AcknowledgeType
    from barnabas.client.share.acquired_records import ShareSource
    from barnabas.protocol.schema import Message

__all__ = ["ShareConsumerCore"]


class ShareConsumerCore:
    """Subscription, membership, share sessions and acknowledgements of one share consumer.

    Args:
        cluster: The connections, used by this consumer only.
        coordinators: Finds group coordinators over the same connections.
        deserializing: The user's deserializers.
    """

    def __init__(
        self, cluster: Cluster, coordinators: Coordinators, deserializing: Deserializing
    ) -> None:
        config = cluster.config
        self.config = config
        self._cluster = cluster
        self._coordinators = coordinators
        self._is_explicit = config.share_acknowledgement_mode == "explicit"
        # Whether an event occurred that the next round has to handle. Set by `wake`, cleared by
        # `round`; a waiting call ends when it becomes true.
        self.is_awake = False
        # Called by `wake` on the event loop.
        self.on_wake: Callable[[], None] = _nothing
        # Set by `wakeup`, from any thread; the next check raises `WakeupError` and clears it.
        self.is_wakeup_wanted = False
        self.subscription = Subscription()
        self._topics = SubscribedTopics(cluster, self.subscription, self.wake)
        self._in_flight = InFlightRecords()
        self.results = AcknowledgementResults()
        # The client generates its member id, valid for its lifetime (KIP-1082).
        self._member_id = uuid_to_string(cluster.runtime.rng.uuid())
        self._membership: ShareMembership | None = None
        self.fetcher = ShareFetcher(
            cluster,
            ShareRequests(config, self._member_id),
            Decoding(deserializing, config.check_crcs),
            ShareFetchListener(self._assigned, self._in_flight.nodes, self.wake),
        )
        # The records of an iteration, and how many of them the user has seen.
        self._rows: list[ShareRecord] = []
        self._rows_seen = 0
        # Records that an iteration did not reach; the next `take` returns them again.
        self._returned: list[ShareRecord] = []
        # The id that a broker has assigned for client telemetry (KIP-714); None before.
        self._client_instance_id: str | None = None

    # Events

    def wake(self) -> None:
        """Mark the consumer as awake and end the wait of the current call."""
        self.is_awake = True
        self.on_wake()

    def check_wakeup(self) -> None:
        """Raise `WakeupError` if `wakeup` was called since the last check."""
        if self.is_wakeup_wanted:
            self.is_wakeup_wanted = False
            raise WakeupError("wakeup() was called")

    def next_deadline_ms(self) -> float:
        """Return when a waiting poll must call `round` again (ms, monotonic clock)."""
        return float("inf") if self._membership is None else self._membership.next_deadline_ms()

    @property
    def trouble(self) -> ClientError | None:
        """Error of a broker that does not respond; None while all needed brokers do."""
        return self.fetcher.trouble or self._cluster.outage

    # Subscription

    def subscribe(self, topics: Collection[str]) -> None:
        """Replace the subscription; the next poll joins the group.

        Raises:
            SubscriptionError: A name is blank.
        """
        self.subscription.subscribe(topics, None)
        if self._membership is None:
            host = ShareMembershipHost(lambda: self.subscription.topics, self._assign, self.wake)
            self._membership = ShareMembership(
                self._cluster, self._coordinators, self._member_id, host
            )
        self._topics.refresh()
        self._membership.on_subscription_changed()

    def _assign(self, partitions: Collection[TopicPartition]) -> None:
        self.subscription.assign_by_group(partitions)
        self._topics.track()
        self.fetcher.pump()

    def _assigned(self) -> Iterable[tuple[TopicPartition, bytes]]:
        """Return the assigned partitions of subscribed topics, with their topic ids."""
        known = self._cluster.metadata.topics
        for tp in self.subscription.assignment:
            if tp.topic in self.subscription.topics and tp.topic in known:
                yield tp, known[tp.topic].topic_id

    def leave(self, on_done: Callable[[], None]) -> None:
        """Send pending acknowledgements, release all other records, and leave the group.

        Args:
            on_done: Called at the end; possibly before this method returns.
        """

        def on_left() -> None:
            on_done()
            self.wake()

        def on_sessions_ended() -> None:
            membership = self._end_subscription()
            if membership is None:
                on_left()
            else:
                membership.leave(on_left)

        self._rows = self._returned = []
        self._deliver(self._in_flight.take(), is_urgent=True)
        self.fetcher.end_sessions(on_sessions_ended)

    def abandon(self) -> None:
        """End sessions and membership at once, because `leave` takes too long."""
        self.fetcher.abandon_sessions()
        membership = self._end_subscription()
        if membership is not None:
            membership.stop()

    def _end_subscription(self) -> ShareMembership | None:
        """Forget subscription and records; return the membership, which the caller ends."""
        self._in_flight.clear()
        membership, self._membership = self._membership, None
        self.subscription.unsubscribe()
        self._topics.track()
        return membership

    def stop(self) -> None:
        """Discard everything that is still in progress."""
        if self._membership is not None:
            self._membership.stop()
            self._membership = None
        self._topics.stop()
        self.fetcher.close()

    # Poll

    def begin_poll(self) -> None:
        """Accept the previous records in implicit mode; send acknowledgements.

        Raises:
            IllegalAcknowledgementError: In explicit mode, records are not acknowledged.
            SubscriptionError: The consumer has no subscription.
        """
        self.results.run()
        self._returned = self._unseen()
        if self._is_explicit:
            if self._in_flight.unacknowledged:
                raise IllegalAcknowledgementError(
                    f"{self._in_flight.unacknowledged} records of the last poll are not "
                    f"acknowledged: with share.acknowledgement.mode=explicit, acknowledge every "
                    f"record before the next poll"
                )
        else:
            self._in_flight.accept_all(self._returned)
        self._rows = []
        if self.subscription.kind is SubscriptionKind.NONE:
            raise SubscriptionError("nothing to poll: subscribe() to topics first")
        acks = self._in_flight.take()
        if not self.fetcher.has_records and not self._returned:
            # The acknowledgements travel with the fetches.
            self.fetcher.is_wanted = not any(each.has_renewals for each in acks.values())
        self._deliver(acks, is_urgent=False)

    def end_poll(self) -> None:
        """Stop acquiring records; a pending fetch may still add some to the buffer."""
        self.fetcher.is_wanted = False

    def round(self) -> None:
        """Advance topics and membership by one step, without waiting.

        Raises:
            WakeupError: `wakeup` was called.
            ClientError: An error that the user has to handle.
            BaseException: The acknowledgement commit callback raised this exception.
        """
        self.is_awake = False
        self.check_wakeup()
        self._topics.check()
        self._topics.maybe_refresh()
        self.results.run()
        if self._membership is not None:
            self._membership.poll()
        if self.fetcher.errors:
            raise self.fetcher.errors.popleft()

    def take(self, limit: int) -> ShareRecords | None:
        """Return acquired records; None if there are none yet.

        Whole batches are returned, so there may be more than `limit` records. Renewed records come
        first and alone, because the user has to acknowledge them again.

        Raises:
            CorruptRecordsError: The next batch is corrupt; its records are rejected.
            RecordDeserializationError: The next record cannot be deserialized; it is released,
                unless the user acknowledges it by its offset.
        """
        if self._returned:
            returned, self._returned = self._returned, []
            return _by_partition(returned)
        if self._in_flight.is_renewing:
            return None
        renewed = self._in_flight.take_renewed()
        if renewed:
            return renewed
        found = self._collect(limit)
        if found:
            self.fetcher.is_wanted = False
            return found
        # Gaps, which have no record that the user could acknowledge.
        self._deliver(self._in_flight.take(), is_urgent=False)
        self.fetcher.start_acquiring()
        return None

    def _collect(self, limit: int) -> ShareRecords:
        found: dict[TopicPartition, list[ShareRecord]] = {}
        count = 0
        while count < limit and (acquired := self.fetcher.first()) is not None:
            source = acquired.source
            if source.tp.topic not in self.subscription.topics:
                self._deliver({source: acquired.release()}, is_urgent=True)
                self.fetcher.drop_first()
                continue
            part = acquired.peek()
            if part is None:
                self.fetcher.drop_first()
                continue
            if part.error is not None and found:
                # The records before the failure are returned first.
                break
            acquired.take()
            self._in_flight.add(source, part)
            if part.error is not None:
                raise part.error
            found.setdefault(source.tp, []).extend(part.records)
            count += len(part.records)
        return ShareRecords(found)

    # Iteration

    def begin_rows(self, records: ShareRecords) -> None:
        """Start to iterate over the records of a poll."""
        self._rows, self._rows_seen = list(records), 0

    def next_row(self) -> ShareRecord | None:
        """Return the next record of an iteration; None at the end of the last poll's records."""
        if self._rows_seen >= len(self._rows):
            return None
        self._rows_seen += 1
        return self._rows[self._rows_seen - 1]

    def _unseen(self) -> list[ShareRecord]:
        return self._rows[self._rows_seen :]

    # Acknowledgements

    def acknowledge(
        self, tp: TopicPartition, offset: int, kind: AcknowledgeType, *, is_by_offset: bool
    ) -> None:
        """Acknowledge a record; `is_by_offset` also finds records that could not be read.

        Raises:
            IllegalAcknowledgementError: The mode is implicit, or the record is not waiting to be
                acknowledged.
        """
        if not self._is_explicit:
            raise IllegalAcknowledgementError(
                "the consumer acknowledges records itself: set "
                "share.acknowledgement.mode=explicit to acknowledge them one by one"
            )
        if is_by_offset:
            self._in_flight.acknowledge_offset(tp, offset, kind)
        else:
            self._in_flight.acknowledge(tp, offset, kind)

    def commit(self) -> ShareCommit:
        """Send the acknowledgements of the last poll's records; return their future results.

        In implicit mode, all records that the user has seen are accepted.
        """
        self.results.run()
        if not self._is_explicit:
            self._in_flight.accept_all(self._unseen())
        acks = self._in_flight.take()
        commit = ShareCommit(source.tp for source in acks)
        self._deliver(acks, is_urgent=True, commit=commit)
        return commit

    def _deliver(
        self,
        acks: Mapping[ShareSource, Acknowledgements],
        *,
        is_urgent: bool,
        commit: ShareCommit | None = None,
    ) -> None:
        groups = [
            AckGroup(source, each, partial(self._on_acknowledged, source, each, commit))
            for source, each in acks.items()
            if each
        ]
        self.fetcher.acknowledge(groups, is_urgent=is_urgent)

    def _on_acknowledged(
        self,
        source: ShareSource,
        acks: Acknowledgements,
        commit: ShareCommit | None,
        error: ClientError | None,
    ) -> None:
        self._in_flight.on_acknowledged(source, acks, error)
        self.results.add(source.tp, acks.offsets, error)
        if commit is not None:
            commit.on_result(source.tp, error)
        self.wake()

    # Telemetry

    def client_instance_id(self, on_done: OnDone[str]) -> None:
        """Ask a broker for this client's instance id (KIP-714); it stays the same afterwards."""
        known = self._client_instance_id
        if known is not None:
            on_done(known, None)
            return

        def build(_version: int) -> Message:
            return GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16))

        def on_response(response: Message | None, error: ClientError | None) -> None:
            if response is not None:
                assert isinstance(response, GetTelemetrySubscriptionsResponse)
                if response.error_code:
                    error = broker_error(response.error_code, "client instance id")
                else:
                    self._client_instance_id = uuid_to_string(response.client_instance_id)
            on_done(self._client_instance_id if error is None else None, error)

        call = Call(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, build, on_response)
        self._cluster.call(ANY_NODE, call)


def _by_partition(records: Iterable[ShareRecord]) -> ShareRecords:
    parts: dict[TopicPartition, list[ShareRecord]] = {}
    for record in records:
        parts.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
    return ShareRecords(parts)


def _nothing() -> None:
    pass
