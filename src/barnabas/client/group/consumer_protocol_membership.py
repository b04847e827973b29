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
from barnabas.client.group.consumer_member import (
    CONSUMER_MEMBER_STATES,
    ConsumerMemberEvent,
    ConsumerMemberState,
    HeartbeatRequests,
    MemberView,
    PartitionsById,
    Reconciliation,
    TopicNames,
)
from barnabas.client.group.group_calls import GroupCalls, HeartbeatSchedule
from barnabas.client.group.membership import AssignmentSteps, GroupGeneration, PollSteps, PollWatch
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import ConsumerGroupHeartbeatResponse
from barnabas.protocol.primitives import uuid_to_string
from barnabas.waiting.state_machine import StateMachine

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.config import ClientConfig
    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.lookups import Coordinators
    from barnabas.client.group.membership import MembershipHost
    from barnabas.protocol.messages.groups import Assignment
    from barnabas.protocol.schema import Message

__all__ = ["ConsumerProtocolMembership"]

_log = logging.getLogger(__name__)

_S, _E = ConsumerMemberState, ConsumerMemberEvent

# Heartbeat interval until the coordinator sends its own (group.consumer.heartbeat.interval.ms).
_FIRST_INTERVAL_MS = 5_000.0
# The coordinator does not know the member in this epoch: the member has lost its partitions.
_FENCING = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
# Errors of a commit when coordinator and member disagree about the member or its epoch.
_MEMBER_CODES = _FENCING | {ErrorCode.STALE_MEMBER_EPOCH}
_NOT_SERVED = "the brokers do not serve the consumer group protocol: set group.protocol=classic"
_NO_REGEX = (
    "patterns that brokers match require Apache Kafka 4.0: use a pattern that the client matches"
)


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
        # The client generates its member id, valid for its lifetime (KIP-1082): a repeated join
        # does not create a second member.
        self._requests = HeartbeatRequests(config, uuid_to_string(cluster.runtime.rng.uuid()))
        self._names = TopicNames(cluster, host.wake)
        self._steps = PollSteps(host.wake)
        self._assignment = AssignmentSteps(host)
        self._heartbeats = HeartbeatSchedule(cluster, self._send_heartbeat)
        self._polls = PollWatch(cluster.runtime, config.max_poll_interval_ms, self._on_poll_missed)
        self._machine = StateMachine("member", _S.UNJOINED, CONSUMER_MEMBER_STATES)
        # The member epoch from the coordinator; 0 while joining. Moved by heartbeat responses.
        self._epoch = 0
        # The user's assignment: partition numbers by topic id; None before the first assignment
        # since the member joined, which may be empty.
        self._owned: PartitionsById | None = None
        # The coordinator's target, from heartbeat responses; empty outside of a membership.
        self._target: PartitionsById = {}
        # The current change of the assignment; None without one. Invariant: None outside of state
        # RECONCILING, unless a step of it is in progress.
        self._reconciliation: Reconciliation | None = None
        # Pending exceptions; each poll raises one.
        self._errors: deque[BaseException] = deque()
        # The error of state FATAL; None in other states.
        self._fatal: ClientError | None = None
        # Heartbeat interval (ms), from heartbeat responses.
        self._interval_ms = _FIRST_INTERVAL_MS
        # Delays the next match of the pattern after a failure; the next poll after the delay
        # repeats it.
        self._join_retry = cluster.retry_timer()

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
        return self._state is _S.STABLE

    def poll(self) -> None:
        """Reconcile, rejoin, or raise a pending error; see `Membership.poll`."""
        if self._state.is_member:
            self._polls.report_if_missed()
        self._polls.on_poll()
        self._join_retry.clear_if_due()
        self._steps.run(self._advance)
        if self._errors:
            raise self._errors.popleft()
        if self._fatal is not None and not self._steps.is_in_progress:
            raise self._fatal

    def next_deadline_ms(self) -> float | None:
        """Return when `poll` must be called again: for max.poll.interval.ms and for retries."""
        due_ms = self._polls.last_ms + self._config.max_poll_interval_ms / 2
        retry_ms = self._join_retry.due_ms
        return due_ms if retry_ms is None else min(due_ms, retry_ms)

    def on_subscription_changed(self) -> None:
        """Send a heartbeat at once; a member in state FATAL becomes UNJOINED.

        The next poll then joins with the new subscription.
        """
        if self._state is _S.FATAL:
            self._fatal = None
            self._machine.on(_E.SUBSCRIPTION_CHANGED)
            self._host.wake()
        elif self._state.is_member:
            self._heartbeats.send_soon()

    def request_rejoin(self, reason: str) -> None:
        """Do nothing: only the coordinator decides when to rebalance, as with Kafka's consumer."""

    def on_commit_error(self, error: ClientError, sent_by: GroupGeneration) -> None:
        """Send a heartbeat at once if coordinator and member disagree about the epoch."""
        is_own = sent_by.member_id == self._requests.member_id
        if is_own and error.error_code in _MEMBER_CODES and self._state.is_member:
            self._heartbeats.send_soon()

    def leave(self, reason: str, on_done: Callable[[], None]) -> None:
        """Give up the partitions, then send the leave request; `on_done` follows its response."""
        if self._state is _S.LEFT:
            on_done()
            return
        _log.info(
            "leaving the group: group=%s member=%s reason=%s",
            *(self._group_id, self._requests.member_id, reason),
        )

        def on_given_up(error: BaseException | None) -> None:
            if error is not None:
                _log.warning("a callback failed: group=%s error=%r", self._group_id, error)
            if self._heartbeats.has_sent and self._state.is_member:
                self._send_leave(on_done)
                self.stop()
            else:
                self.stop()
                on_done()

        self._assignment.give_up_all(on_given_up, is_member=self._state.is_member)

    def stop(self) -> None:
        """Cancel all timers and ignore pending responses."""
        self._end_membership(_E.LEFT)
        self._steps.stop()
        self._names.stop()

    # States

    @property
    def _state(self) -> ConsumerMemberState:
        return self._machine.state

    def _end_membership(self, event: ConsumerMemberEvent) -> None:
        """End the membership; the next poll reports the owned partitions as lost."""
        self._machine.on(event)
        assert not self._state.is_member, self._state
        self._heartbeats.stop()
        self._polls.stop()
        self._reconciliation = None
        self._target = {}
        self._requests.forget()
        if self._state is not _S.LEFT:
            self._host.wake()

    # Within poll

    def _advance(self) -> bool:
        """Start the next due step; return False if none is due."""
        match self._state:
            case _S.UNJOINED | _S.FENCED | _S.STALE:
                return self._advance_to_join()
            case _S.FATAL:
                return self._lose_owned()
            case _S.RECONCILING:
                return self._advance_reconciliation()
            case _S.JOINING | _S.STABLE | _S.ACKNOWLEDGING | _S.LEFT:
                return False

    def _advance_to_join(self) -> bool:
        if self._lose_owned():
            return True
        if self._join_retry.due_ms is None:
            self._steps.start(self._host.refresh_pattern, self._on_pattern_refreshed)
        return False

    def _on_pattern_refreshed(self, error: BaseException | None) -> None:
        if error is not None:
            self._join_retry.hold_off()
            if not isinstance(error, ClientError) or not error.retriable:
                self._errors.append(error)
            return
        self._join_retry.reset()
        self._epoch = 0
        self._owned = None
        self._machine.on(_E.JOIN_STARTED)
        self._polls.start()
        self._heartbeats.start(0.0)

    def _lose_owned(self) -> bool:
        """Report the owned partitions as lost to the user; return whether there were any."""
        self._owned = None
        has_owned = bool(self._host.owned_partitions)
        if has_owned:
            self._steps.start(self._assignment.lose_all, self._on_step_done)
        return has_owned

    def _advance_reconciliation(self) -> bool:
        reconciliation = self._reconciliation
        if reconciliation is None:
            target = self._names.resolve(self._target)
            if self._names.is_first_request:
                return False
            if target == self._owned:
                if target == self._target:
                    self._acknowledge()
                return False
            reconciliation = Reconciliation(
                self._host, self._assignment, target, self._names.named(target)
            )
            self._reconciliation = reconciliation
        if not reconciliation.is_done:
            self._steps.start(reconciliation.next, self._on_step_done)
            return True
        self._reconciliation = None
        self._owned = reconciliation.target
        self._names.keep_only(self._owned, self._target)
        self._acknowledge()
        return False

    def _acknowledge(self) -> None:
        self._requests.list_owned()
        self._machine.on(_E.ASSIGNMENT_APPLIED)
        self._heartbeats.send_soon()

    def _on_step_done(self, error: BaseException | None) -> None:
        if error is not None:
            self._errors.append(error)

    def _on_poll_missed(self) -> None:
        """Leave the group, so that the coordinator can assign the partitions to other members."""
        _log.warning(
            "leaving the group because the user did not poll: group=%s max.poll.interval.ms=%d",
            self._group_id,
            self._config.max_poll_interval_ms,
        )
        self._send_leave(lambda: None)
        self._end_membership(_E.POLL_MISSED)

    # Heartbeats

    def _send_heartbeat(self, era: int) -> None:
        assert self._state.is_member, self._state

        def on_response(response: Message | None, error: ClientError | None) -> None:
            if self._heartbeats.accept(era):
                self._on_response(response, error)

        def on_found(node_id: int | None, error: ClientError | None) -> None:
            if node_id is None:
                on_response(None, error)
            elif self._heartbeats.accept(era):
                # Do not send a heartbeat for a membership that ended during the coordinator lookup.
                self._calls.call(
                    ApiKey.CONSUMER_GROUP_HEARTBEAT, lambda _version: self._heartbeat(), on_response
                )

        self._coordinators.find(self._group_id, on_found)

    def _heartbeat(self) -> Message:
        """Build the heartbeat when it is sent; listing the owned partitions acknowledges them."""
        topics = tuple(sorted(self._host.subscribed_topics))
        view = MemberView(topics, self._host.subscribed_regex, dict(self._owned or {}))
        request = self._requests.heartbeat(self._epoch, view)
        if self._state is _S.ACKNOWLEDGING:
            if self._owned == self._target:
                self._machine.on(_E.ACKNOWLEDGED)
            else:
                self._machine.on(_E.ACKNOWLEDGED_IN_PART)
                self._host.wake()
        return request

    def _on_response(self, response: Message | None, error: ClientError | None) -> None:
        if error is not None:
            self._requests.forget()
            self._on_error(error)
        else:
            assert isinstance(response, ConsumerGroupHeartbeatResponse)
            self._on_success(response)

    def _on_success(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self._epoch = response.member_epoch
        if response.member_id:
            self._requests.member_id = response.member_id
        if response.heartbeat_interval_ms > 0:
            self._interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            self._update_target(response.assignment)
        self._heartbeats.on_success(self._interval_ms)

    def _update_target(self, assignment: Assignment) -> None:
        found = {
            topic.topic_id: frozenset(number for number in topic.partitions if number >= 0)
            for topic in assignment.topic_partitions
        }
        self._target = {topic_id: numbers for topic_id, numbers in found.items() if numbers}
        if self._target != self._owned:
            self._machine.on(_E.TARGET_CHANGED)
            self._host.wake()
        elif self._state is _S.RECONCILING and self._reconciliation is None:
            # The coordinator has revoked partitions that the member has not taken over yet. It
            # waits for a heartbeat that does not list them.
            self._acknowledge()

    def _on_error(self, error: ClientError) -> None:
        """Change the membership after an error response or a missing response."""
        code = error.error_code
        if code in _FENCING:
            self._end_membership(_E.FENCED)
        elif code is ErrorCode.UNSUPPORTED_VERSION:
            hint = _NOT_SERVED if self._host.subscribed_regex is None else _NO_REGEX
            explained = ClientError(f"{error}. {hint}")
            explained.error_code = code
            self._fail(explained)
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # The consumer stays a member, because the permission may be granted later.
            self._errors.append(error)
            self._host.wake()
            self._heartbeats.on_failure(self._interval_ms)
        elif error.retriable:
            self._heartbeats.on_failure()
        else:
            self._fail(error)

    def _fail(self, error: ClientError) -> None:
        _log.warning(
            "the heartbeat failed: group=%s member=%s error=%s",
            *(self._group_id, self._requests.member_id, error),
        )
        self._fatal = error
        self._end_membership(_E.FAILED)

    def _send_leave(self, on_done: Callable[[], None]) -> None:
        """Send the leave request once, and ignore the response.

        If the coordinator is unknown, no request is sent: the coordinator removes the member when
        its session times out.
        """
        if not self._calls.is_coordinator_known:
            on_done()
            return
        request = self._requests.leave()
        self._calls.call(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, lambda _version: request, lambda *_result: on_done()
        )
