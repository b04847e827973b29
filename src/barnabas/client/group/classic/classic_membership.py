"""A group member under the classic protocol: members join, and their leader assigns partitions.

`poll` advances the membership as far as possible without waiting. It finds the coordinator,
prepares and sends the join, and applies the result. Steps that wait for a response continue in
later polls. The rebalance itself (`rebalance.py`) and heartbeats (`heartbeat.py`) run between
polls.

Sources: KIP-62 (background heartbeats), KIP-345, KIP-394, KIP-429 (cooperative rebalancing),
KIP-568 (rejoin on demand), KIP-800, KIP-814, KIP-881.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.errors import ClientConfigError, ClientError
from barnabas.client.group.assignors.assignor import Subscription
from barnabas.client.group.classic.group_leader import GroupLeader
from barnabas.client.group.classic.handover import Handover
from barnabas.client.group.classic.heartbeat import Heartbeat, HeartbeatOwner
from barnabas.client.group.classic.member_payloads import read_assignment, write_subscription
from barnabas.client.group.classic.member_state import MemberState, MemberStatus
from barnabas.client.group.classic.rebalance import Rebalance, RebalanceParts
from barnabas.client.group.classic.strategies import common_protocol, resolve_assignors
from barnabas.client.group.coordinator_search import CoordinatorSearch
from barnabas.client.group.group_calls import GroupCalls
from barnabas.client.group.membership import GroupGeneration
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.config import ClientConfig
    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.coordinators import Coordinators
    from barnabas.client.group.assignors.assignor import Assignment
    from barnabas.client.group.membership import MembershipHost, OnHostDone
    from barnabas.protocol.schema import Message

__all__ = ["ClassicMembership"]

_log = logging.getLogger(__name__)

# From this version on LeaveGroup contains a list of members.
_LEAVE_LISTS_FROM = 3
# After these errors the member rejoins without a backoff.
_AT_ONCE = frozenset({
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MEMBER_ID_REQUIRED,
})  # fmt: skip
# After this number of consecutive failures with such an error the member does back off.
_AT_ONCE_MAX = 5
_THROWN_OUT = frozenset({
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
        self._clock = cluster.runtime.clock
        self._assignors = resolve_assignors(config.partition_assignment_strategy)
        protocol = common_protocol(self._assignors)
        self._status = MemberStatus()
        self._search = CoordinatorSearch(cluster, coordinators, self._group_id, host.wake)
        self._calls = GroupCalls(cluster, coordinators, self._group_id)
        self._leader = GroupLeader(cluster, self._assignors, protocol, host.wake)
        self._handover = Handover(host, self._status, protocol)
        owner = HeartbeatOwner(lambda: self.generation, self._on_heartbeat, self._on_poll_missed)
        self._heartbeat = Heartbeat(cluster, self._calls, owner)
        # The current rebalance, until its result is applied; None without one.
        self._rebalance: Rebalance | None = None
        # Whether a step of the host is in progress.
        self._host_is_busy = False
        # Whether `poll` is running; then the host need not be woken.
        self._is_in_poll = False
        # Whether the pattern was matched against fresh metadata for the next join.
        self._pattern_is_fresh = False
        # The topics of the last JoinGroup; None before the first.
        self._joined_topics: frozenset[str] | None = None
        # Whether the host reported a change of its subscription.
        self._look_at_subscription = False
        # The exception that the next poll raises; None without one.
        self._failure: BaseException | None = None
        # Number of consecutive backoffs, and of consecutive join failures with an error in
        # `_AT_ONCE`.
        self._failures = 0
        self._failures_at_once = 0
        # Time of the next join at the earliest (ms, monotonic clock).
        self._retry_ms = 0.0
        # Whether `stop` was called, which `leave` also does at its end; this is final.
        self._is_stopped = False

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
        return self._status.state is MemberState.STABLE

    def poll(self) -> None:
        """Advance the membership without waiting; record that the user polls."""
        assert not self._is_stopped, "poll after leave or stop"
        self._heartbeat.note_poll()
        self._is_in_poll = True
        try:
            while self._advance():
                pass
        finally:
            self._is_in_poll = False

    def next_deadline_ms(self) -> float | None:
        """Return when `poll` must be called again (ms, monotonic clock).

        A consumer that waits for records calls `poll` by then, so that the wait counts as polling.
        """
        due_ms = self._heartbeat.poll_again_ms
        if self._retry_ms > self._clock.monotonic_ms():
            due_ms = min(due_ms, self._retry_ms)
        return due_ms

    def on_subscription_changed(self) -> None:
        """Note a changed subscription; the next poll rejoins if the topics differ."""
        self._look_at_subscription = True

    def request_rejoin(self, reason: str) -> None:
        """Rejoin with the next poll."""
        self._status.request_rejoin(reason)

    def on_commit_error(self, error: ClientError, spoken_by: GroupGeneration) -> None:
        """Handle the error of a refused commit of a generation."""
        code = error.error_code
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._status.request_rejoin("offset commit failed since group is already rebalancing")
        elif code in _THROWN_OUT and spoken_by == self.generation and not self._status.is_reset:
            self._on_thrown_out(code, "OFFSET_COMMIT")

    def leave(self, reason: str, on_done: Callable[[], None]) -> None:
        """Give up all partitions, leave the group (except a static member), and stop.

        The host handles exceptions of callbacks. If the coordinator is unknown, no LeaveGroup is
        sent: the coordinator removes the member when the session times out.
        """
        self._heartbeat.stop()

        def on_given_up(_error: BaseException | None) -> None:
            self._leave_group(reason, on_done)
            self.stop()

        self._handover.leave(on_given_up)

    def stop(self) -> None:
        """Stop at once, without a request to the broker."""
        self._is_stopped = True
        self._handover.end()
        self._heartbeat.stop()
        self._search.stop()
        self._leader.resign()
        if self._rebalance is not None:
            self._rebalance.drop()
            self._rebalance = None

    # Steps of poll; each returns whether another step may follow

    def _advance(self) -> bool:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._host_is_busy or not self._search.is_ready():
            return False
        if self._rebalance is not None:
            return self._conclude(self._rebalance)
        if not self._must_join() or self._clock.monotonic_ms() < self._retry_ms:
            return False
        if not self._pattern_is_fresh:
            self._run(self._host.refresh_pattern, self._on_pattern_refreshed)
        elif self._status.needs_prepare:
            # Clear the flag first, so that a callback that raises is not repeated.
            self._status.needs_prepare = False
            self._run(self._handover.prepare, self._on_prepared)
        else:
            self._join()
        return True

    def _must_join(self) -> bool:
        status = self._status
        if self._look_at_subscription:
            self._look_at_subscription = False
            topics = frozenset(self._host.subscribed_topics)
            if self._joined_topics is not None and topics != self._joined_topics:
                self._request_once("the subscription has changed since the last join")
        if self._leader.is_outdated():
            self._request_once("cached metadata has changed since the last assignment")
        return status.rejoin_needed

    def _request_once(self, reason: str) -> None:
        if not self._status.rejoin_needed:
            self._status.request_rejoin(reason)

    def _run(
        self, start: Callable[[OnHostDone], None], then: Callable[[BaseException | None], None]
    ) -> None:
        """Start a step of the host, which may end later.

        Args:
            start: Starts the step.
            then: Called with the step's exception or None.
        """
        self._host_is_busy = True

        def done(error: BaseException | None) -> None:
            assert self._host_is_busy
            self._host_is_busy = False
            then(error)
            if not self._is_in_poll:
                self._host.wake()

        start(done)

    def _on_pattern_refreshed(self, error: BaseException | None) -> None:
        if error is None:
            self._pattern_is_fresh = True
            self._failures = 0
        elif isinstance(error, ClientError) and error.retriable:
            self._back_off()
        else:
            self._failure = error

    def _on_prepared(self, error: BaseException | None) -> None:
        self._failure = error

    # Joining

    def _join(self) -> None:
        topics = frozenset(self._host.subscribed_topics)
        self._joined_topics = topics
        self._look_at_subscription = False
        self._leader.resign()
        subscription = Subscription(
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
        parts = RebalanceParts(
            self._config,
            self._group_id,
            self._calls,
            self._status,
            self._leader,
            self._heartbeat,
        )
        self._rebalance = Rebalance(parts, protocols, self._on_rebalance_done)
        self._rebalance.start()

    def _on_rebalance_done(self) -> None:
        if not self._is_in_poll:
            self._host.wake()

    def _conclude(self, rebalance: Rebalance) -> bool:
        """Apply the result of a rebalance, if it is available."""
        outcome = rebalance.outcome
        status = self._status
        if outcome is None:
            return False
        if isinstance(outcome, BaseException):
            self._rebalance = None
            self._on_join_failed(outcome)
        elif status.is_reset or status.state is not MemberState.STABLE:
            self._rebalance = None
            self._heartbeat.stop()
            status.reset("the generation was lost before the assignment was taken over")
        else:
            self._take_over(outcome)
        return True

    def _take_over(self, payload: bytes) -> None:
        try:
            assignment = read_assignment(payload)
        except ProtocolError as error:
            self._rebalance = None
            self._failure = ClientError(f"the leader's assignment is not understood: {error}")
            self._status.request_rejoin("the assignment is not understood")
            return
        take_over = partial(self._hand_over, assignment)
        if self._matches(assignment):
            self._run(take_over, self._on_taken_over)
            return

        def look_again(error: BaseException | None) -> None:
            # The leader may know topics that match the pattern but are missing in this member's
            # metadata.
            if error is None and self._matches(assignment):
                self._run(take_over, self._on_taken_over)
            else:
                self._rebalance = None
                # Back off, because the leader would probably repeat the wrong assignment at once.
                self._back_off()
                self._status.needs_prepare = True
                self._status.request_rejoin(
                    "received assignment does not match the current subscription"
                )

        self._run(self._host.refresh_pattern, look_again)

    def _matches(self, assignment: Assignment) -> bool:
        """Return whether all assigned topics are still subscribed to."""
        return {tp.topic for tp in assignment.partitions} <= set(self._host.subscribed_topics)

    def _hand_over(self, assignment: Assignment, done: OnHostDone) -> None:
        assignor = self._assignors.get(self._status.protocol_name or "")
        generation = self.generation

        def on_assignment() -> None:
            if assignor is not None:
                assignor.on_assignment(assignment, generation)

        self._handover.complete(assignment, on_assignment, done)

    def _on_taken_over(self, error: BaseException | None) -> None:
        if error is not None:
            # Keep the result; the next poll applies it again, so that the callback is called again.
            self._failure = error
            return
        _log.info(
            "joined group %s as %s: generation %d, %d partitions",
            *(self._group_id, self._status.member_id, self._status.generation_id),
            len(self._host.owned_partitions),
        )
        self._rebalance = None
        self._status.needs_prepare = True
        self._pattern_is_fresh = False
        self._failures = self._failures_at_once = 0

    def _on_join_failed(self, error: BaseException) -> None:
        code = error.error_code if isinstance(error, ClientError) else None
        name = code.name if code is not None else type(error).__name__
        if code is not ErrorCode.MEMBER_ID_REQUIRED:
            self._status.request_rejoin(f"rebalance failed due to {name}")
        if code in _AT_ONCE:
            self._failures_at_once += 1
            if self._failures_at_once > _AT_ONCE_MAX:
                self._back_off()
        elif isinstance(error, ClientError) and error.retriable:
            self._back_off()
        else:
            self._failure = error

    def _back_off(self) -> None:
        self._failures += 1
        delay_ms = self._cluster.retry_backoff.delay_ms(self._failures)
        self._retry_ms = self._clock.monotonic_ms() + delay_ms

    # Between polls

    def _on_heartbeat(self, error: ClientError | None, spoken_by: GroupGeneration) -> None:
        if error is None:
            return
        status = self._status
        code = error.error_code
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if status.state is MemberState.STABLE:
                status.request_rejoin("group is already rebalancing")
                self._host.wake()
        elif code in _THROWN_OUT:
            if spoken_by == self.generation:
                self._on_thrown_out(code, "HEARTBEAT")
                if code is ErrorCode.FENCED_INSTANCE_ID:
                    self._failure = error
                self._host.wake()
        elif not error.retriable:
            self._failure = error
            self._host.wake()

    def _on_thrown_out(self, code: ErrorCode, api: str) -> None:
        _log.warning(
            "group %s went on without this member: %s (%s)", self._group_id, code.name, api
        )
        self._heartbeat.stop()
        self._leader.resign()
        keep = code is ErrorCode.ILLEGAL_GENERATION
        self._status.reset(f"encountered {code.name} from {api} response", keep_member_id=keep)

    def _on_poll_missed(self) -> None:
        _log.warning(
            "no poll for max.poll.interval.ms=%d: leaving group %s. Handle fewer records per poll "
            "(max.poll.records), or allow more time",
            self._config.max_poll_interval_ms,
            self._group_id,
        )
        self._leave_group("consumer poll timeout has expired.", lambda: None)
        self._leader.resign()
        self._status.reset("consumer pro-actively leaving the group")
        self._host.wake()

    def _leave_group(self, reason: str, on_done: Callable[[], None]) -> None:
        """Send LeaveGroup, unless the member is static (KIP-345) or the broker is unknown."""
        status = self._status
        unknown = status.state is MemberState.UNJOINED or not status.member_id
        if unknown or self._config.group_instance_id or not self._calls.is_coordinator_known:
            on_done()
            return
        member_id = status.member_id

        def build(version: int) -> Message:
            if version < _LEAVE_LISTS_FROM:
                return LeaveGroupRequest(group_id=self._group_id, member_id=member_id)
            identity = MemberIdentity(member_id=member_id, reason=reason)
            return LeaveGroupRequest(group_id=self._group_id, members=[identity])

        def on_answer(_response: object, _error: ClientError | None) -> None:
            on_done()

        # A pending JoinGroup blocks the coordinator's connection until all other members have
        # joined.
        call = self._calls.call_beside if status.is_rebalancing else self._calls.call
        call(ApiKey.LEAVE_GROUP, build, on_answer)
