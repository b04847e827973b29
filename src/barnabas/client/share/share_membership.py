"""A member of a share group: states, heartbeats, and partitions from the coordinator (KIP-932).

Several members may have the same partition, so an assignment is applied at once and without
callbacks of the user.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import ClientError
from barnabas.client.group.consumer_member import PartitionsById, TopicNames
from barnabas.client.group.group_calls import GroupCalls, HeartbeatSchedule
from barnabas.client.group.membership import PollWatch
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_consumers import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from barnabas.waiting.state_machine import StateMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.lookups import Coordinators
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.protocol.schema import Message

__all__ = [
    "SHARE_MEMBER_STATES",
    "ShareMemberEvent",
    "ShareMemberState",
    "ShareMembership",
    "ShareMembershipHost",
]

_log = logging.getLogger(__name__)
_JOIN_EPOCH = 0
_LEAVE_EPOCH = -1
# Heartbeat interval until the coordinator sends its own (group.share.heartbeat.interval.ms).
_FIRST_INTERVAL_MS = 5_000.0
_FENCING = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
_NOT_SERVED = "the brokers do not serve share groups: the feature share.version must be 1 or higher"


class ShareMemberState(Enum):
    """The state of a member of a share group."""

    # The next poll joins: no request was sent, the coordinator does not know the member, or the
    # member left because the user did not poll in time.
    UNJOINED = auto()
    # The request to join (epoch 0) is being sent.
    JOINING = auto()
    # The coordinator knows the member.
    STABLE = auto()
    # An error occurred that is not retriable; a changed subscription starts again.
    FATAL = auto()
    # The member is leaving or has left; this state is final.
    LEFT = auto()

    @property
    def is_member(self) -> bool:
        """Whether the coordinator may count the consumer as a member; then it sends heartbeats."""
        return self in (ShareMemberState.JOINING, ShareMemberState.STABLE)


class ShareMemberEvent(Enum):
    """Events that change the state of a member."""

    JOIN_STARTED = auto()
    # A heartbeat succeeded.
    ACCEPTED = auto()
    # A heartbeat was refused with UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH.
    FENCED = auto()
    # The user did not poll for max.poll.interval.ms.
    POLL_MISSED = auto()
    # A heartbeat failed with an error that is not retriable.
    FAILED = auto()
    SUBSCRIPTION_CHANGED = auto()
    LEFT = auto()


_S, _E = ShareMemberState, ShareMemberEvent
# The events that end a membership.
_ENDS = {
    _E.FENCED: _S.UNJOINED,
    _E.POLL_MISSED: _S.UNJOINED,
    _E.FAILED: _S.FATAL,
    _E.LEFT: _S.LEFT,
}
SHARE_MEMBER_STATES: Mapping[ShareMemberState, Mapping[ShareMemberEvent, ShareMemberState]] = {
    _S.UNJOINED: {_E.JOIN_STARTED: _S.JOINING, _E.LEFT: _S.LEFT},
    _S.JOINING: {_E.ACCEPTED: _S.STABLE, **_ENDS},
    _S.STABLE: {_E.ACCEPTED: _S.STABLE, **_ENDS},
    _S.FATAL: {_E.SUBSCRIPTION_CHANGED: _S.UNJOINED, _E.LEFT: _S.LEFT},
    _S.LEFT: {_E.LEFT: _S.LEFT},
}


class ShareMembershipHost(NamedTuple):
    """Functions of the consumer that the membership calls."""

    subscribed_topics: Callable[[], Collection[str]]
    # Replaces the assignment.
    assign: Callable[[Collection[TopicPartition]], None]
    # Ends the wait of a poll.
    wake: Callable[[], None]


class ShareMembership:
    """One member from its first join until it leaves.

    Args:
        cluster: Reaches the brokers.
        coordinators: Finds the group coordinator.
        member_id: The id of the member, which the client generates (KIP-1082).
        host: Functions of the consumer.
    """

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        member_id: str,
        host: ShareMembershipHost,
    ) -> None:
        config = cluster.config
        assert config.group_id, "a member needs a group"
        self._group_id = config.group_id
        self._config = config
        self._coordinators = coordinators
        self._member_id = member_id
        self._host = host
        self._calls = GroupCalls(cluster, coordinators, config.group_id)
        self._names = TopicNames(cluster, self._assign)
        self._heartbeats = HeartbeatSchedule(cluster, self._send_heartbeat)
        self._polls = PollWatch(cluster.runtime, config.max_poll_interval_ms, self._on_poll_missed)
        self._machine = StateMachine("share member", _S.UNJOINED, SHARE_MEMBER_STATES)
        # The member epoch from the coordinator; 0 while joining. Moved by heartbeat responses.
        self._epoch = _JOIN_EPOCH
        # The topics in the last heartbeat; None if the next one must list them.
        self._sent_topics: tuple[str, ...] | None = None
        # The assignment by topic id, from heartbeat responses; empty outside of a membership.
        self._target: PartitionsById = {}
        # The error of state FATAL; None in other states.
        self._fatal: ClientError | None = None
        # An error that the next poll raises, without an end of the membership.
        self._error: ClientError | None = None
        self._interval_ms = _FIRST_INTERVAL_MS

    @property
    def _state(self) -> ShareMemberState:
        return self._machine.state

    def poll(self) -> None:
        """Join if the consumer is not a member; record that the user polls.

        Raises:
            ClientError: An error that is not retriable.
        """
        if self._state.is_member:
            self._polls.report_if_missed()
        self._polls.on_poll()
        if self._state is _S.UNJOINED:
            self._epoch = _JOIN_EPOCH
            self._sent_topics = None
            self._machine.on(_E.JOIN_STARTED)
            self._polls.start()
            self._heartbeats.start(0.0)
        error, self._error = self._error, None
        error = error or self._fatal
        if error is not None:
            raise error

    def next_deadline_ms(self) -> float:
        """Return when `poll` must be called again (ms, monotonic clock)."""
        return self._polls.last_ms + self._config.max_poll_interval_ms / 2

    def on_subscription_changed(self) -> None:
        """Send a heartbeat at once; a member in state FATAL joins with the next poll."""
        if self._state is _S.FATAL:
            self._fatal = None
            self._machine.on(_E.SUBSCRIPTION_CHANGED)
        elif self._state.is_member:
            self._heartbeats.send_soon()

    def leave(self, on_done: Callable[[], None]) -> None:
        """Send the leave request once and stop.

        If the coordinator is unknown, no request is sent: the coordinator removes the member when
        its session times out.

        Args:
            on_done: Called after the response, possibly before this method returns.
        """
        must_send_leave = self._state.is_member and self._heartbeats.has_sent
        self.stop()
        if must_send_leave and self._calls.is_coordinator_known:
            self._send_leave(on_done)
        else:
            on_done()

    def stop(self) -> None:
        """Cancel all timers and ignore pending responses."""
        self._end(_E.LEFT)
        self._names.stop()

    def _end(self, event: ShareMemberEvent) -> None:
        self._machine.on(event)
        self._heartbeats.stop()
        self._polls.stop()
        self._target = {}
        self._assign()

    def _on_poll_missed(self) -> None:
        _log.warning(
            "leaving the share group because the user did not poll: group=%s "
            "max.poll.interval.ms=%d",
            *(self._group_id, self._config.max_poll_interval_ms),
        )
        self._send_leave(lambda: None)
        self._end(_E.POLL_MISSED)

    def _assign(self) -> None:
        """Apply the target, as far as the names of its topics are known."""
        self._host.assign(self._names.named(self._names.resolve(self._target)))
        self._names.keep_only(self._target)
        self._host.wake()

    # Heartbeats

    def _send_heartbeat(self, era: int) -> None:
        assert self._state.is_member, self._state

        def on_response(
            response: ShareGroupHeartbeatResponse | None, error: ClientError | None
        ) -> None:
            if not self._heartbeats.accept(era):
                return
            if error is not None:
                self._on_error(error)
            else:
                assert response is not None
                self._on_success(response)

        def on_found(node_id: int | None, error: ClientError | None) -> None:
            if node_id is None:
                on_response(None, error)
            elif self._heartbeats.accept(era):
                self._calls.call(
                    ApiKey.SHARE_GROUP_HEARTBEAT, lambda _version: self._heartbeat(), on_response
                )

        self._coordinators.find(self._group_id, on_found)

    def _heartbeat(self) -> Message:
        """Return the next heartbeat; the first one, and one after an error, list everything."""
        topics = tuple(sorted(self._host.subscribed_topics()))
        request = self._minimal_request(self._epoch)
        if self._sent_topics is None:
            request.rack_id = self._config.client_rack
        if self._sent_topics != topics:
            request.subscribed_topic_names = list(topics)
        self._sent_topics = topics
        return request

    def _minimal_request(self, epoch: int) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=epoch
        )

    def _send_leave(self, on_done: Callable[[], None]) -> None:
        self._calls.call(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            lambda _version: self._minimal_request(_LEAVE_EPOCH),
            lambda *_result: on_done(),
        )

    def _on_success(self, response: ShareGroupHeartbeatResponse) -> None:
        self._machine.on(_E.ACCEPTED)
        self._epoch = response.member_epoch
        if response.heartbeat_interval_ms > 0:
            self._interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            found = {
                topic.topic_id: frozenset(number for number in topic.partitions if number >= 0)
                for topic in response.assignment.topic_partitions
            }
            self._target = {topic_id: numbers for topic_id, numbers in found.items() if numbers}
            self._assign()
        self._heartbeats.on_success(self._interval_ms)

    def _on_error(self, error: ClientError) -> None:
        code = error.error_code
        self._sent_topics = None
        if code in _FENCING:
            self._end(_E.FENCED)
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # The consumer stays a member, because the permission may be granted later.
            self._error = error
            self._heartbeats.on_failure(self._interval_ms)
        elif error.retriable:
            self._heartbeats.on_failure()
        else:
            self._fail(error)
        self._host.wake()

    def _fail(self, error: ClientError) -> None:
        _log.warning(
            "the heartbeat failed: group=%s member=%s error=%s",
            *(self._group_id, self._member_id, error),
        )
        if error.error_code is ErrorCode.UNSUPPORTED_VERSION:
            explained = ClientError(f"{error}. {_NOT_SERVED}")
            explained.error_code = error.error_code
            error = explained
        self._fatal = error
        self._end(_E.FAILED)
