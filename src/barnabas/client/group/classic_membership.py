"""A group member under the classic protocol: members join, and their leader assigns partitions.

`poll` advances the membership as far as possible without waiting. It finds the coordinator,
prepares and sends the join, and applies the result. Steps that wait for a response continue in
later polls. The rebalance itself (`rebalance.py`) and heartbeats (`group_calls.py`) run between
polls.

Sources: KIP-62 (background heartbeats), KIP-345, KIP-394, KIP-429 (cooperative rebalancing),
KIP-568 (rejoin on demand), KIP-800, KIP-814, KIP-881.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.errors import ClientConfigError, ClientError
from barnabas.client.group.assignor import MemberSubscription
from barnabas.client.group.classic_member_state import (
    ClassicMemberState,
    ClassicMemberStatus,
    JoinStep,
)
from barnabas.client.group.group_calls import (
    CoordinatorSearch,
    GroupCalls,
    Heartbeat,
    HeartbeatCallbacks,
)
from barnabas.client.group.group_leader import (
    PROTOCOL_TYPE,
    GroupLeader,
    common_protocol,
    read_assignment,
    resolve_assignors,
    write_subscription,
)
from barnabas.client.group.membership import GroupGeneration, PollSteps, PollWatch
from barnabas.client.group.rebalance import PartitionTransfer, Rebalance, RebalanceDependencies
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.groups import LeaveGroupRequest, MemberIdentity

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.config import ClientConfig
    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.lookups import Coordinators
    from barnabas.client.group.assignor import Assignment
    from barnabas.client.group.membership import MembershipHost, OnHostDone
    from barnabas.protocol.schema import Message


__all__ = ["ClassicMembership"]

_log = logging.getLogger(__name__)

# From this version on LeaveGroup contains a list of members.
_LEAVE_LISTS_FROM = 3
# After these errors the member rejoins without a backoff.
_IMMEDIATE_RETRY = frozenset({
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MEMBER_ID_REQUIRED,
})  # fmt: skip
# After this number of consecutive failures with such an error the member does back off.
_IMMEDIATE_RETRIES_MAX = 5
_REMOVED = frozenset({
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
})  # fmt: skip


class ClassicMembership:
    """A member under the classic protocol; implements `Membership`.

    Args:
        cluster: Reaches the brokers; its runtime provides the timers.
        coordinators: Finds and caches the group's coordinator.
        config: The configuration; `group_id` must be set.
        host: The consumer.

    Raises:
        ClientConfigError: `group_id` is missing, or the assignors have no common protocol.
    """

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        config: ClientConfig,
        host: MembershipHost,
    ) -> None:
        if not config.group_id:
            raise ClientConfigError("group.id is missing: a member needs a group")
        self._group_id: str = config.group_id
        self._config = config
        self._host = host
        self._cluster = cluster
        self._assignors = resolve_assignors(config.partition_assignment_strategy)
        protocol = common_protocol(self._assignors)
        self._status = ClassicMemberStatus()
        self._steps = PollSteps(host.wake)
        self._search = CoordinatorSearch(cluster, coordinators, self._group_id, host.wake)
        self._calls = GroupCalls(cluster, coordinators, self._group_id)
        self._leader = GroupLeader(cluster, self._assignors, protocol, host.wake)
        self._transfer = PartitionTransfer(host, self._status, protocol)
        callbacks = HeartbeatCallbacks(lambda: self.generation, self._on_heartbeat)
        self._heartbeat = Heartbeat(cluster, self._calls, callbacks)
        self._polls = PollWatch(cluster.runtime, config.max_poll_interval_ms, self._on_poll_missed)
        # The current rebalance, from JoinGroup until its result is applied; None without one.
        # Invariant: not None exactly in the steps APPLY_ASSIGNMENT and APPLY_AFTER_LOSS.
        self._rebalance: Rebalance | None = None
        # The topics of the last JoinGroup; None before the first.
        self._joined_topics: frozenset[str] | None = None
        # Whether the host reported a change of its subscription that no poll has compared yet.
        self._subscription_changed = False
        # The exception that the next poll raises; None without one.
        self._failure: BaseException | None = None
        # Delays the next join after a failure; the next poll after the delay starts it.
        self._join_retry = cluster.retry_timer()
        # Number of consecutive join failures with an error in `_IMMEDIATE_RETRY`; reset by a join.
        self._immediate_retries = 0

    # Membership

    @property
    def generation(self) -> GroupGeneration:
        """The member and generation on whose behalf the consumer acts now."""
        status = self._status
        return GroupGeneration(
            self._group_id, status.generation_id, status.member_id, self._config.group_instance_id
        )

    @property
    def is_stable(self) -> bool:
        """Whether the assignment is valid and the coordinator accepts commits of this generation.

        This is also true while partitions are given up before the next join, so that their offsets
        can be committed. It is false from JoinGroup until the SyncGroup response, and without a
        generation.
        """
        return self._status.state is ClassicMemberState.STABLE

    def poll(self) -> None:
        """Advance the membership without waiting; record that the user polls."""
        assert not self._status.is_stopped, "poll after leave or stop"
        self._polls.on_poll()
        self._join_retry.clear_if_due()
        self._raise_failure()
        self._steps.run(self._advance)

    def next_deadline_ms(self) -> float | None:
        """Return when `poll` must be called again (ms, monotonic clock).

        A consumer that waits for records calls `poll` by then, so that the wait counts as polling.
        """
        config = self._config
        interval_ms = min(config.heartbeat_interval_ms, config.max_poll_interval_ms / 2)
        due_ms = self._polls.last_ms + interval_ms
        retry_ms = self._join_retry.due_ms
        return due_ms if retry_ms is None else min(due_ms, retry_ms)

    def on_subscription_changed(self) -> None:
        """Note a changed subscription; the next poll rejoins if the topics differ."""
        self._subscription_changed = True

    def request_rejoin(self, reason: str) -> None:
        """Rejoin with the next poll."""
        self._status.request_rejoin(reason)

    def on_commit_error(self, error: ClientError, sent_by: GroupGeneration) -> None:
        """Handle the error of a refused commit of a generation."""
        code = error.error_code
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._status.request_rejoin("offset commit failed since group is already rebalancing")
        elif code in _REMOVED and sent_by == self.generation and not self._status.is_reset:
            self._on_removed(code, "OFFSET_COMMIT")

    def leave(self, reason: str, on_done: Callable[[], None]) -> None:
        """Give up all partitions, leave the group (except a static member), and stop.

        The host handles exceptions of callbacks. If the coordinator is unknown, no LeaveGroup is
        sent: the coordinator removes the member when the session times out.
        """
        self._stop_heartbeats()
        self._status.stop()
        self._steps.stop()

        def on_given_up(_error: BaseException | None) -> None:
            self._leave_group(reason, on_done)
            self.stop()

        self._transfer.give_up_all(on_given_up)

    def stop(self) -> None:
        """Stop at once, without a request to the broker."""
        self._status.stop()
        self._steps.stop()
        self._stop_heartbeats()
        self._search.stop()
        self._leader.resign()
        if self._rebalance is not None:
            self._rebalance.drop()
            self._rebalance = None

    # Steps of poll; each returns whether another step may follow

    def _advance(self) -> bool:
        self._raise_failure()
        if not self._search.is_ready():
            return False
        if self._rebalance is not None:
            return self._apply_result(self._rebalance)
        if not self._must_join() or self._join_retry.due_ms is not None:
            return False
        match self._status.step:
            case JoinStep.MATCH_PATTERN:
                self._steps.start(self._host.refresh_pattern, self._on_pattern_refreshed)
            case JoinStep.GIVE_UP_PARTITIONS:
                # Change the step first, so that a callback that raises is not repeated.
                self._status.on_give_up_started()
                self._steps.start(self._transfer.give_up_before_join, self._on_given_up)
            case JoinStep.SEND_JOIN:
                self._join()
            case JoinStep.APPLY_ASSIGNMENT | JoinStep.APPLY_AFTER_LOSS | JoinStep.STOPPED:
                raise AssertionError(f"no rebalance in step {self._status.step.name}")
        return True

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _must_join(self) -> bool:
        if self._subscription_changed:
            self._subscription_changed = False
            topics = frozenset(self._host.subscribed_topics)
            if self._joined_topics is not None and topics != self._joined_topics:
                self._request_once("the subscription has changed since the last join")
        if self._leader.is_outdated():
            self._request_once("cached metadata has changed since the last assignment")
        return self._status.rejoin_reason is not None

    def _request_once(self, reason: str) -> None:
        if self._status.rejoin_reason is None:
            self._status.request_rejoin(reason)

    def _on_pattern_refreshed(self, error: BaseException | None) -> None:
        if error is None:
            self._status.on_pattern_matched()
            self._join_retry.reset()
        elif isinstance(error, ClientError) and error.retriable:
            self._join_retry.hold_off()
        else:
            self._failure = error

    def _on_given_up(self, error: BaseException | None) -> None:
        self._failure = error

    # Joining

    def _join(self) -> None:
        topics = frozenset(self._host.subscribed_topics)
        self._joined_topics = topics
        self._subscription_changed = False
        self._leader.resign()
        subscription = MemberSubscription(
            sorted(topics),
            sorted(self._host.owned_partitions),
            generation_id=self._status.generation_id,
            rack_id=self._config.client_rack or None,
        )
        protocols = {
            name: write_subscription(
                subscription._replace(user_data=assignor.user_data(subscription.topics))
            )
            for name, assignor in self._assignors.items()
        }
        dependencies = RebalanceDependencies(
            config=self._config,
            group_id=self._group_id,
            protocol_type=PROTOCOL_TYPE,
            calls=self._calls,
            status=self._status,
            leader=self._leader,
            start_heartbeats=self._start_heartbeats,
            stop_heartbeats=self._stop_heartbeats,
        )
        self._rebalance = Rebalance(dependencies, protocols, self._steps.wake)
        self._rebalance.start()

    def _apply_result(self, rebalance: Rebalance) -> bool:
        """Apply the result of a rebalance, if it is available."""
        outcome = rebalance.outcome
        status = self._status
        if outcome is None:
            return False
        if isinstance(outcome, BaseException):
            self._end_rebalance()
            self._on_join_failed(outcome)
        elif status.is_reset or status.state is not ClassicMemberState.STABLE:
            self._stop_heartbeats()
            status.reset("the generation was lost before the assignment was applied")
            self._end_rebalance()
        else:
            self._apply(outcome)
        return True

    def _end_rebalance(self) -> None:
        """Discard the rebalance, whose assignment was not applied."""
        self._rebalance = None
        self._status.on_join_failed()

    def _apply(self, payload: bytes) -> None:
        try:
            assignment = read_assignment(payload)
        except ProtocolError as error:
            self._end_rebalance()
            self._failure = ClientError(f"the leader's assignment cannot be read: {error}")
            self._status.request_rejoin("the assignment cannot be read")
            return
        apply = partial(self._transfer_partitions, assignment)
        if self._matches(assignment):
            self._steps.start(apply, self._on_applied)
            return

        def on_refreshed(error: BaseException | None) -> None:
            # The leader may know topics that match the pattern but are missing in this member's
            # metadata.
            if error is None and self._matches(assignment):
                self._steps.start(apply, self._on_applied)
            else:
                self._rebalance = None
                # Back off, because the leader would probably repeat the wrong assignment at once.
                self._join_retry.hold_off()
                self._status.on_assignment_rejected(
                    "received assignment does not match the current subscription"
                )

        self._steps.start(self._host.refresh_pattern, on_refreshed)

    def _matches(self, assignment: Assignment) -> bool:
        """Return whether all assigned topics are still subscribed to."""
        return {tp.topic for tp in assignment.partitions} <= set(self._host.subscribed_topics)

    def _transfer_partitions(self, assignment: Assignment, on_done: OnHostDone) -> None:
        assignor = self._assignors.get(self._status.protocol_name or "")
        generation = self.generation

        def on_assignment() -> None:
            if assignor is not None:
                assignor.on_assignment(assignment, generation)

        self._transfer.apply(assignment, on_assignment, on_done)

    def _on_applied(self, error: BaseException | None) -> None:
        if error is not None:
            # Keep the result; the next poll applies it again, so that the callback is called again.
            self._failure = error
            return
        _log.info(
            "joined the group: group=%s member=%s generation=%d partitions=%d",
            *(self._group_id, self._status.member_id, self._status.generation_id),
            len(self._host.owned_partitions),
        )
        self._rebalance = None
        self._status.on_assignment_applied()
        self._join_retry.reset()
        self._immediate_retries = 0

    def _on_join_failed(self, error: BaseException) -> None:
        code = error.error_code if isinstance(error, ClientError) else None
        name = code.name if code is not None else type(error).__name__
        if code is not ErrorCode.MEMBER_ID_REQUIRED:
            self._status.request_rejoin(f"rebalance failed due to {name}")
        if code in _IMMEDIATE_RETRY:
            self._immediate_retries += 1
            if self._immediate_retries > _IMMEDIATE_RETRIES_MAX:
                self._join_retry.hold_off()
        elif isinstance(error, ClientError) and error.retriable:
            self._join_retry.hold_off()
        else:
            self._failure = error

    # Between polls

    def _start_heartbeats(self) -> None:
        """Send heartbeats, and supervise the user's polls from the time of the join on."""
        self._heartbeat.start()
        self._polls.on_poll()
        self._polls.start()

    def _stop_heartbeats(self) -> None:
        self._heartbeat.stop()
        self._polls.stop()

    def _on_heartbeat(self, error: ClientError | None, sent_by: GroupGeneration) -> None:
        if error is None:
            return
        status = self._status
        code = error.error_code
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if status.state is ClassicMemberState.STABLE:
                status.request_rejoin("group is already rebalancing")
                self._host.wake()
        elif code in _REMOVED:
            if sent_by == self.generation:
                self._on_removed(code, "HEARTBEAT")
                if code is ErrorCode.FENCED_INSTANCE_ID:
                    self._failure = error
                self._host.wake()
        elif not error.retriable:
            self._failure = error
            self._host.wake()

    def _on_removed(self, code: ErrorCode, api: str) -> None:
        _log.warning(
            "the group removed the member: group=%s error=%s api=%s", self._group_id, code.name, api
        )
        self._stop_heartbeats()
        self._leader.resign()
        keep = code is ErrorCode.ILLEGAL_GENERATION
        self._status.reset(f"encountered {code.name} from {api} response", keep_member_id=keep)

    def _on_poll_missed(self) -> None:
        _log.warning(
            "leaving the group because the user did not poll: group=%s max.poll.interval.ms=%d. "
            "Process fewer records per poll (max.poll.records), or increase the interval",
            self._group_id,
            self._config.max_poll_interval_ms,
        )
        self._heartbeat.stop()
        self._leave_group("consumer poll timeout has expired.", lambda: None)
        self._leader.resign()
        self._status.reset("consumer pro-actively leaving the group")
        self._host.wake()

    def _leave_group(self, reason: str, on_done: Callable[[], None]) -> None:
        """Send LeaveGroup, unless the member is static (KIP-345) or the broker is unknown."""
        status = self._status
        unknown = status.state is ClassicMemberState.UNJOINED or not status.member_id
        if unknown or self._config.group_instance_id or not self._calls.is_coordinator_known:
            on_done()
            return
        member_id = status.member_id

        def build(version: int) -> Message:
            if version < _LEAVE_LISTS_FROM:
                return LeaveGroupRequest(group_id=self._group_id, member_id=member_id)
            identity = MemberIdentity(member_id=member_id, reason=reason)
            return LeaveGroupRequest(group_id=self._group_id, members=[identity])

        def on_response(_response: object, _error: ClientError | None) -> None:
            on_done()

        # A pending JoinGroup blocks the coordinator's connection until all other members have
        # joined.
        call = self._calls.call_on_general_connection if status.is_rebalancing else self._calls.call
        call(ApiKey.LEAVE_GROUP, build, on_response)
