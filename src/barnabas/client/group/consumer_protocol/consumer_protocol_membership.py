"""A member under the consumer group protocol (KIP-848): the coordinator assigns partitions.

Heartbeat requests contain the member's subscription and its current partitions; heartbeat responses
contain the target assignment. Members do not wait for each other. A member that must give up a
partition does so and reports it with the next heartbeat. Only then does the coordinator assign the
partition to another member.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from barnabas.client.errors import ClientError
from barnabas.client.group.consumer_protocol.heartbeat_requests import HeartbeatRequests, MemberView
from barnabas.client.group.consumer_protocol.member_state import MemberState
from barnabas.client.group.consumer_protocol.reconciliation import Reconciliation
from barnabas.client.group.consumer_protocol.topic_names import PartitionsById, TopicNames
from barnabas.client.group.group_calls import GroupCalls
from barnabas.client.group.membership import GroupGeneration
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from barnabas.protocol.primitives import uuid_to_string

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.config import ClientConfig
    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.coordinators import Coordinators
    from barnabas.client.group.membership import MembershipHost, OnHostDone
    from barnabas.protocol.messages.consumer_group_heartbeat import Assignment
    from barnabas.protocol.schema import Message
    from barnabas.runtime.timer import Cancellable

__all__ = ["ConsumerProtocolMembership"]

_log = logging.getLogger(__name__)

# Heartbeat interval until the coordinator sends its own (group.consumer.heartbeat.interval.ms).
_FIRST_INTERVAL_MS = 5_000.0
# The coordinator does not know the member in this epoch: the member has lost its partitions.
_FENCING = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
# Errors of a commit when coordinator and member disagree about the member or its epoch.
_MEMBER_CODES = _FENCING | {ErrorCode.STALE_MEMBER_EPOCH}
_NOT_SERVED = "the brokers do not serve the consumer group protocol: set group.protocol=classic"
_NO_REGEX = "a pattern that brokers match needs Apache Kafka 4.0: let the client match it"


class ConsumerProtocolMembership:
    """A member under the consumer group protocol; implements `Membership`."""

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        config: ClientConfig,
        host: MembershipHost,
    ) -> None:
        assert config.group_id, "a member needs a group"
        self._group_id = config.group_id
        self._cluster = cluster
        self._coordinators = coordinators
        self._calls = GroupCalls(cluster, coordinators, config.group_id)
        self._config = config
        self._host = host
        self._clock = cluster.runtime.clock
        self._timer = cluster.runtime.timer
        # The client generates its member id, valid for its lifetime (KIP-1082): a repeated join
        # does not create a second member.
        self._requests = HeartbeatRequests(config, uuid_to_string(cluster.runtime.rng.uuid()))
        self._names = TopicNames(cluster, host.wake)
        self._state = MemberState.UNJOINED
        # The member epoch from the coordinator; 0 while joining.
        self._epoch = 0
        # The user's assignment, and the coordinator's target: partition numbers by topic id.
        self._owned: PartitionsById = {}
        self._target: PartitionsById = {}
        # Whether an assignment was applied since the member joined; the first may be empty.
        self._is_assigned = False
        # The current change of the assignment; None without one.
        self._reconciliation: Reconciliation | None = None
        # Whether a step of the host is in progress; there is at most one.
        self._host_is_busy = False
        # Pending exceptions; each poll raises one.
        self._errors: deque[BaseException] = deque()
        # The error of state FATAL; None in other states.
        self._fatal: ClientError | None = None
        # Whether `poll` is running; then the host need not be woken.
        self._in_poll = False
        # When the user last polled (ms, monotonic clock).
        self._last_poll_ms = self._clock.monotonic_ms()
        # Timer that checks max.poll.interval.ms; None if it is not running.
        self._poll_timer: Cancellable | None = None
        # Timer of the next heartbeat; None while one is in flight or not needed.
        self._beat_timer: Cancellable | None = None
        # Incremented when a membership ends; responses to heartbeats of earlier ones are dropped.
        self._incarnation = 0
        # Whether a heartbeat is in flight; there is at most one.
        self._in_flight = False
        # Whether the next heartbeat follows directly after the response to the current one.
        self._is_urgent = False
        # When the last heartbeat was sent (ms, monotonic clock); None before the first.
        self._sent_ms: float | None = None
        self._interval_ms = _FIRST_INTERVAL_MS
        # Number of consecutive failed heartbeats or pattern refreshes.
        self._failures = 0
        # When the metadata refresh for a pattern is retried (ms, monotonic clock); None if not
        # scheduled.
        self._retry_join_ms: float | None = None

    # Membership

    @property
    def generation(self) -> GroupGeneration:
        """The member and its epoch; only the group id while the consumer is not a member."""
        if not self._state.is_member or self._epoch <= 0:
            return GroupGeneration(self._group_id)
        return GroupGeneration(
            self._group_id,
            self._epoch,
            self._requests.member_id,
            self._config.group_instance_id,
            is_epoch=True,
        )

    @property
    def is_stable(self) -> bool:
        """Whether the coordinator accepts commits: the consumer is a member with an epoch."""
        return self._state.is_member and self._epoch > 0

    @property
    def is_reconciled(self) -> bool:
        """Whether member and coordinator agree on the assignment."""
        return self._state is MemberState.STABLE

    def poll(self) -> None:
        """Reconcile, rejoin, or raise a pending error; see `Membership.poll`."""
        self._expire_if_late()
        self._last_poll_ms = self._clock.monotonic_ms()
        self._in_poll = True
        try:
            while not self._host_is_busy and self._advance():
                pass
        finally:
            self._in_poll = False
        if self._errors:
            raise self._errors.popleft()
        if self._fatal is not None and not self._host_is_busy:
            raise self._fatal

    def next_deadline_ms(self) -> float | None:
        """Return when `poll` must be called again: for max.poll.interval.ms and for retries."""
        half = self._last_poll_ms + self._config.max_poll_interval_ms / 2
        return half if self._retry_join_ms is None else min(half, self._retry_join_ms)

    def on_subscription_changed(self) -> None:
        """Send a heartbeat at once; a member in state FATAL becomes UNJOINED.

        The next poll then joins with the new subscription.
        """
        if self._state is MemberState.FATAL:
            self._fatal = None
            self._become(MemberState.UNJOINED)
            self._host.wake()
        elif self._state.is_member:
            self._beat_soon()

    def request_rejoin(self, reason: str) -> None:
        """Do nothing: only the coordinator decides when to rebalance, as with Kafka's consumer."""

    def on_commit_error(self, error: ClientError, spoken_by: GroupGeneration) -> None:
        """Send a heartbeat at once if coordinator and member disagree about the epoch."""
        concerns_us = spoken_by.member_id == self._requests.member_id
        if concerns_us and error.error_code in _MEMBER_CODES and self._state.is_member:
            self._beat_soon()

    def leave(self, reason: str, on_done: Callable[[], None]) -> None:
        """Give up the partitions, then send the leave request; `on_done` follows its response."""
        if self._state is MemberState.LEFT:
            on_done()
            return
        _log.info("%s leaves group %s: %s", self._requests.member_id, self._group_id, reason)

        def on_given_back(error: BaseException | None) -> None:
            if error is not None:
                _log.warning("giving partitions back before leaving: %r", error)
            if self._sent_ms is not None and self._state.is_member:
                self._say_goodbye(on_done)
                self.stop()
            else:
                self.stop()
                on_done()

        owned = list(self._host.owned_partitions)
        if not owned:
            on_given_back(None)
        elif self._state.is_member:
            self._host.revoke(owned, on_given_back)
        else:
            self._host.lose(owned, on_given_back)

    def stop(self) -> None:
        """Cancel all timers and ignore pending responses."""
        self._end_membership(MemberState.LEFT)
        self._names.stop()
        if self._poll_timer is not None:
            self._poll_timer.cancel()
            self._poll_timer = None

    # States

    def _become(self, state: MemberState) -> None:
        assert self._state.can_become(state), f"{self._state} to {state}"
        self._state = state

    def _end_membership(self, state: MemberState) -> None:
        """End the membership; the next poll reports the owned partitions as lost."""
        if self._state is state:
            return
        self._become(state)
        self._incarnation += 1
        self._in_flight = False
        self._reconciliation = None
        self._target = {}
        self._requests.forget()
        if self._beat_timer is not None:
            self._beat_timer.cancel()
            self._beat_timer = None
        if state is not MemberState.LEFT:
            self._host.wake()

    # Within poll

    def _advance(self) -> bool:
        """Start the next due step; return False if none is due."""
        match self._state:
            case MemberState.UNJOINED | MemberState.FENCED | MemberState.STALE:
                return self._advance_to_join()
            case MemberState.FATAL:
                return self._lose_owned()
            case MemberState.RECONCILING:
                return self._advance_reconciliation()
            case (
                MemberState.JOINING
                | MemberState.STABLE
                | MemberState.ACKNOWLEDGING
                | MemberState.LEFT
            ):
                return False

    def _advance_to_join(self) -> bool:
        if self._lose_owned():
            return True
        now_ms = self._clock.monotonic_ms()
        if self._retry_join_ms is not None and now_ms < self._retry_join_ms:
            return False
        self._retry_join_ms = None
        self._host_is_busy = True
        self._host.refresh_pattern(self._on_pattern_matched)
        return False

    def _on_pattern_matched(self, error: BaseException | None) -> None:
        self._host_is_busy = False
        if self._state is MemberState.LEFT:
            return
        if error is not None:
            self._failures += 1
            delay_ms = self._cluster.retry_backoff.delay_ms(self._failures)
            self._retry_join_ms = self._clock.monotonic_ms() + delay_ms
            if not isinstance(error, ClientError) or not error.retriable:
                self._errors.append(error)
            self._wake_unless_polling()
            return
        self._failures = 0
        self._epoch = 0
        self._owned = {}
        self._is_assigned = False
        self._become(MemberState.JOINING)
        self._watch_polls()
        self._beat_soon()

    def _lose_owned(self) -> bool:
        """Report the owned partitions as lost to the user; return whether there were any."""
        self._owned = {}
        owned = list(self._host.owned_partitions)
        if owned:
            self._start_step(lambda on_done: self._host.lose(owned, on_done))
        return bool(owned)

    def _advance_reconciliation(self) -> bool:
        reconciliation = self._reconciliation
        if reconciliation is None:
            target = self._names.resolve(self._target)
            if self._names.is_first_asking:
                return False
            if target == self._owned and self._is_assigned:
                if target == self._target:
                    self._acknowledge()
                return False
            reconciliation = Reconciliation(self._host, target, self._names.named(target))
            self._reconciliation = reconciliation
        if not reconciliation.is_done:
            self._start_step(reconciliation.next)
            return True
        self._reconciliation = None
        self._owned = reconciliation.target
        self._is_assigned = True
        self._names.keep_only(self._owned, self._target)
        self._acknowledge()
        return False

    def _acknowledge(self) -> None:
        self._become(MemberState.ACKNOWLEDGING)
        self._beat_soon()

    def _start_step(self, step: Callable[[OnHostDone], None]) -> None:
        self._host_is_busy = True
        step(self._on_step_done)

    def _on_step_done(self, error: BaseException | None) -> None:
        self._host_is_busy = False
        if error is not None:
            self._errors.append(error)
        self._wake_unless_polling()

    def _wake_unless_polling(self) -> None:
        if not self._in_poll:
            self._host.wake()

    # Supervision of the user's polls

    def _watch_polls(self) -> None:
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        due_ms = self._last_poll_ms + self._config.max_poll_interval_ms
        delay_ms = max(0.0, due_ms - self._clock.monotonic_ms())
        self._poll_timer = self._timer.call_later(delay_ms, self._on_poll_check)

    def _on_poll_check(self) -> None:
        self._poll_timer = None
        if self._state.is_member and not self._expire_if_late():
            self._watch_polls()

    def _expire_if_late(self) -> bool:
        """Leave the group if the user has not polled for max.poll.interval.ms.

        The coordinator can then assign the partitions to other members.

        Returns:
            Whether the member has left.
        """
        silent_ms = self._clock.monotonic_ms() - self._last_poll_ms
        if self._state.is_member and silent_ms >= self._config.max_poll_interval_ms:
            self._say_goodbye(lambda: None)
            self._end_membership(MemberState.STALE)
            return True
        return False

    # Heartbeats

    def _beat_soon(self) -> None:
        """Send a heartbeat as soon as none is in flight, unless a retry backoff is active."""
        if self._in_flight:
            self._is_urgent = True
        elif not self._failures:
            self._beat_in(0.0)

    def _beat_in(self, delay_ms: float) -> None:
        assert not self._in_flight, "one heartbeat at a time"
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        self._beat_timer = self._timer.call_later(delay_ms, self._beat)

    def _beat(self) -> None:
        self._beat_timer = None
        assert self._state.is_member, self._state
        self._in_flight = True
        self._is_urgent = False
        self._sent_ms = self._clock.monotonic_ms()
        incarnation = self._incarnation

        def on_answer(response: Message | None, error: ClientError | None) -> None:
            if incarnation == self._incarnation:
                self._in_flight = False
                self._on_answer(response, error)

        def on_found(node_id: int | None, error: ClientError | None) -> None:
            if node_id is None:
                on_answer(None, error)
            elif incarnation == self._incarnation:
                # Do not send a heartbeat for a membership that ended during the coordinator lookup.
                self._calls.call(
                    ApiKey.CONSUMER_GROUP_HEARTBEAT, lambda _version: self._heartbeat(), on_answer
                )

        self._coordinators.find(self._group_id, on_found)

    def _heartbeat(self) -> Message:
        """Build the heartbeat when it is sent; listing the owned partitions acknowledges them."""
        topics = tuple(sorted(self._host.subscribed_topics))
        view = MemberView(topics, self._host.subscribed_regex, dict(self._owned))
        request = self._requests.heartbeat(self._epoch, view)
        if self._state is MemberState.ACKNOWLEDGING:
            if self._owned == self._target:
                self._become(MemberState.STABLE)
            else:
                self._become(MemberState.RECONCILING)
                self._host.wake()
        return request

    def _on_answer(self, response: Message | None, error: ClientError | None) -> None:
        if error is not None:
            self._requests.forget()
            self._on_error(error)
        else:
            assert isinstance(response, ConsumerGroupHeartbeatResponse)
            self._on_success(response)

    def _on_success(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self._failures = 0
        self._epoch = response.member_epoch
        if response.member_id:
            self._requests.member_id = response.member_id
        if response.heartbeat_interval_ms > 0:
            self._interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            self._take_target(response.assignment)
        if self._is_urgent:
            self._beat_in(0.0)
        else:
            assert self._sent_ms is not None
            elapsed_ms = self._clock.monotonic_ms() - self._sent_ms
            self._beat_in(max(0.0, self._interval_ms - elapsed_ms))

    def _take_target(self, assignment: Assignment) -> None:
        found = {
            topic.topic_id: frozenset(number for number in topic.partitions if number >= 0)
            for topic in assignment.topic_partitions
        }
        self._target = {topic_id: numbers for topic_id, numbers in found.items() if numbers}
        if self._target != self._owned or not self._is_assigned:
            if self._state is not MemberState.RECONCILING:
                self._become(MemberState.RECONCILING)
            self._host.wake()
        elif self._state is MemberState.RECONCILING and self._reconciliation is None:
            self._become(MemberState.STABLE)

    def _on_error(self, error: ClientError) -> None:
        """Change the membership after an error response or a missing response."""
        self._failures += 1
        backoff_ms = self._cluster.retry_backoff.delay_ms(self._failures)
        code = error.error_code
        if code in _FENCING:
            self._end_membership(MemberState.FENCED)
        elif code is ErrorCode.UNSUPPORTED_VERSION:
            hint = _NOT_SERVED if self._host.subscribed_regex is None else _NO_REGEX
            told = ClientError(f"{error}. {hint}")
            told.error_code = code
            self._fail(told)
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # The consumer stays a member, because the permission may be granted later.
            self._errors.append(error)
            self._host.wake()
            self._beat_in(max(backoff_ms, self._interval_ms))
        elif error.retriable:
            self._beat_in(backoff_ms)
        else:
            self._fail(error)

    def _fail(self, error: ClientError) -> None:
        _log.warning("%s: %s", self._requests.member_id, error)
        self._fatal = error
        self._end_membership(MemberState.FATAL)

    def _say_goodbye(self, on_done: Callable[[], None]) -> None:
        """Send the leave request once, and ignore the response.

        If the coordinator is unknown, no request is sent: the coordinator removes the member when
        its session times out.
        """
        if not self._calls.is_coordinator_known:
            on_done()
            return
        request = self._requests.leave()
        self._calls.call(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, lambda _version: request, lambda *_answer: on_done()
        )
