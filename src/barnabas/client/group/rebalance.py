"""One rebalance of a member of a classic group, and the partitions before and after it.

A rebalance is JoinGroup, the leader's assignment, SyncGroup. Once started, it continues by itself
until it ends; the owner checks `outcome` in each poll.

Eager members give up all partitions before they join. Cooperative members give up only the
partitions that the new assignment takes from them, after the join. They then rejoin so that other
members can get these partitions. A member that the group has removed loses its partitions: other
members may already own them, so nothing is committed.

Sources: KIP-62, KIP-345 (static members), KIP-394 (member ids), KIP-429 (cooperative members),
KIP-559 (protocol type and name), KIP-800 (reasons), KIP-814 (skipped assignments).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.client.errors import ClientError, broker_error
from barnabas.client.group.assignor import RebalanceProtocol
from barnabas.client.group.classic_member_state import ClassicMemberState
from barnabas.client.group.membership import AssignmentSteps
from barnabas.client.user_code import UserCode
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.client.config import ClientConfig
    from barnabas.client.group.assignor import Assignment
    from barnabas.client.group.classic_member_state import ClassicMemberStatus
    from barnabas.client.group.group_calls import GroupCalls
    from barnabas.client.group.group_leader import OnAssigned
    from barnabas.client.group.membership import MembershipHost, OnHostDone
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.protocol.schema import Message


__all__ = ["AssigningLeader", "PartitionTransfer", "Rebalance", "RebalanceDependencies"]

# Maximum length of a reason sent to the broker, in characters.
_REASON_MAX = 255
# The broker may respond to JoinGroup only after the rebalance timeout; this is added for the
# network.
_JOIN_GRACE_MS = 5_000
# Errors when the broker does not know the member or its generation.
_NOT_THIS_MEMBER = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class PartitionTransfer:
    """Changes the host's partitions step by step; each step calls `on_done`, possibly at once.

    A step that waits when the member leaves ends there: it changes nothing and calls nothing.
    """

    def __init__(
        self, host: MembershipHost, status: ClassicMemberStatus, protocol: RebalanceProtocol
    ) -> None:
        self._host = host
        self._steps = AssignmentSteps(host)
        self._status = status
        self._is_cooperative = protocol is RebalanceProtocol.COOPERATIVE

    def give_up_before_join(self, on_done: OnHostDone) -> None:
        """Commit, then give up the partitions that the member may not keep during the join."""
        if self._status.is_reset:
            self._steps.lose_all(on_done)
        else:
            # Ignore the result of the commit, which the host handles: the join continues either
            # way.
            self._host.commit_before_revoke(
                self._given_up_before_join(), lambda _error: self._give_up(on_done)
            )

    def give_up_all(self, on_done: OnHostDone) -> None:
        """Give up all partitions permanently, because the member leaves."""
        is_member = not (self._status.is_reset or self._status.is_rebalancing)
        self._steps.give_up_all(on_done, is_member=is_member)

    def apply(
        self,
        assignment: Assignment,
        on_assignment: Callable[[], None],
        on_done: OnHostDone,
    ) -> None:
        """Apply an assignment.

        Args:
            assignment: All partitions that this member owns from now on.
            on_assignment: Notifies the assignor, after the removed partitions were given up.
            on_done: Receives the first exception of a callback; the assignment is applied anyway.
        """
        assigned = sorted(assignment.partitions)
        removed = self._steps.removed_by(assigned)
        assign = partial(self._assign, assigned, on_assignment, on_done)
        if not self._is_cooperative or not removed:
            assign(None)
            return

        def on_committed(_error: BaseException | None) -> None:
            if self._status.is_stopped:
                return
            if self._status.is_reset:
                # The group removed the member during the commit; all partitions are lost before the
                # next join.
                on_done(None)
                return
            words = ", ".join(str(tp) for tp in removed)
            self._status.request_rejoin(f"need to revoke partitions [{words}] and re-join")
            self._host.revoke(removed, assign)

        # Commit again, because records of these partitions were returned since the commit before
        # the join. Java's consumer does not; there the next owner reads these records again.
        self._host.commit_before_revoke(removed, on_committed)

    def _assign(
        self,
        assigned: Collection[TopicPartition],
        on_assignment: Callable[[], None],
        on_done: OnHostDone,
        error: BaseException | None,
    ) -> None:
        if self._status.is_stopped:
            return
        with UserCode() as code:
            on_assignment()
        first = error or code.error
        self._steps.assign(assigned, lambda error: on_done(first or error))

    def _give_up(self, on_done: OnHostDone) -> None:
        if self._status.is_stopped:
            return
        if self._status.is_reset:
            # The group removed the member during the commit.
            self._steps.lose_all(on_done)
            return
        partitions = self._given_up_before_join()
        # Eager members call the callback in every rebalance, even without partitions.
        if self._is_cooperative and not partitions:
            on_done(None)
        else:
            self._host.revoke(partitions, on_done)

    def _given_up_before_join(self) -> list[TopicPartition]:
        """Return all partitions of an eager member, or those of topics no longer subscribed to."""
        owned = self._steps.owned
        if not self._is_cooperative:
            return owned
        subscribed = set(self._host.subscribed_topics)
        return [tp for tp in owned if tp.topic not in subscribed]


class RebalanceInterruptedError(ClientError):
    """The group removed the member while its JoinGroup was in flight."""

    retriable = True


class AssigningLeader(Protocol):
    """The leader's part of a rebalance."""

    def assign(self, joined: JoinGroupResponse, on_assigned: OnAssigned) -> None:
        """Make the assignments of all members.

        Args:
            joined: The leader's JoinGroup response.
            on_assigned: Called with the result, possibly before this method returns.
        """
        ...


class RebalanceDependencies(NamedTuple):
    """The objects that all rebalances of a member share."""

    config: ClientConfig
    group_id: str
    # The protocol type of the group, which says what its metadata and assignments contain.
    protocol_type: str
    calls: GroupCalls
    status: ClassicMemberStatus
    leader: AssigningLeader
    # Start and stop the heartbeats of the generation.
    start_heartbeats: Callable[[], None]
    stop_heartbeats: Callable[[], None]


class Rebalance:
    """One rebalance. `outcome` is this member's assignment, an error, or None while pending.

    Args:
        dependencies: The shared objects. The rebalance changes the status and starts heartbeats.
        protocols: The subscription payload of each assignor, by name, in order of preference.
        on_done: Called when `outcome` is set.
    """

    def __init__(
        self,
        dependencies: RebalanceDependencies,
        protocols: dict[str, bytes],
        on_done: Callable[[], None],
    ) -> None:
        self._dependencies = dependencies
        self._status = dependencies.status
        self._protocols = protocols
        self._on_done = on_done
        # This member's assignment, or an error; set once by `_finish`, None before.
        self.outcome: bytes | BaseException | None = None
        # Whether `drop` was called; then responses are ignored.
        self._dropped = False

    def drop(self) -> None:
        """Ignore all further responses."""
        self._dropped = True

    # JoinGroup

    def start(self) -> None:
        """Send JoinGroup."""
        self._status.on_join_sent()
        config = self._dependencies.config
        member_id = self._status.member_id
        reason = (self._status.rejoin_reason or "")[:_REASON_MAX]

        def build(_version: int) -> Message:
            return JoinGroupRequest(
                group_id=self._dependencies.group_id,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.max_poll_interval_ms,
                member_id=member_id,
                group_instance_id=config.group_instance_id,
                protocol_type=self._dependencies.protocol_type,
                protocols=[
                    JoinGroupRequestProtocol(name=name, metadata=metadata)
                    for name, metadata in self._protocols.items()
                ],
                reason=reason,
            )

        timeout_ms = max(config.request_timeout_ms, config.max_poll_interval_ms + _JOIN_GRACE_MS)
        self._dependencies.calls.call(ApiKey.JOIN_GROUP, build, self._on_joined, timeout_ms)

    def _on_joined(self, joined: JoinGroupResponse | None, error: ClientError | None) -> None:
        if self._dropped:
            return
        status = self._status
        if error is not None:
            if error.error_code is ErrorCode.UNKNOWN_MEMBER_ID:
                status.reset("encountered UNKNOWN_MEMBER_ID from JOIN_GROUP response")
            elif error.error_code is ErrorCode.MEMBER_ID_REQUIRED and joined is not None:
                status.on_member_id(joined.member_id)
            self._finish(error)
            return
        assert joined is not None
        if joined.protocol_type not in (None, self._dependencies.protocol_type):
            self._finish(_inconsistent(f"the group has members of type {joined.protocol_type}"))
        elif joined.generation_id < 0 or not joined.member_id:
            words = f"member {joined.member_id!r} of generation {joined.generation_id}"
            self._finish(broker_error(ErrorCode.UNKNOWN_SERVER_ERROR, "JOIN_GROUP", words))
        elif status.state is not ClassicMemberState.PREPARING_REBALANCE:
            self._finish(RebalanceInterruptedError("the generation was lost during JoinGroup"))
        else:
            status.on_joined(joined.generation_id, joined.member_id, joined.protocol_name)
            self._dependencies.start_heartbeats()
            if joined.leader == joined.member_id:
                self._dependencies.leader.assign(joined, self._on_assigned)
            else:
                self._sync([])

    def _on_assigned(
        self, assignments: list[SyncGroupRequestAssignment], error: BaseException | None
    ) -> None:
        if self._dropped:
            return
        if error is not None:
            self._finish(error)
        else:
            self._sync(assignments)

    # SyncGroup

    def _sync(self, assignments: list[SyncGroupRequestAssignment]) -> None:
        status = self._status
        sent_by = (status.generation_id, status.member_id)
        protocol_name = status.protocol_name

        def build(_version: int) -> Message:
            return SyncGroupRequest(
                group_id=self._dependencies.group_id,
                generation_id=sent_by[0],
                member_id=sent_by[1],
                group_instance_id=self._dependencies.config.group_instance_id,
                protocol_type=self._dependencies.protocol_type,
                protocol_name=protocol_name,
                assignments=assignments,
            )

        def on_synced(synced: SyncGroupResponse | None, error: ClientError | None) -> None:
            if not self._dropped:
                unchanged = sent_by == (status.generation_id, status.member_id)
                if error is not None:
                    self._on_sync_refused(error, unchanged=unchanged)
                else:
                    assert synced is not None
                    self._on_synced(synced, unchanged=unchanged)

        config = self._dependencies.config
        timeout_ms = max(config.request_timeout_ms, config.max_poll_interval_ms + _JOIN_GRACE_MS)
        self._dependencies.calls.call(ApiKey.SYNC_GROUP, build, on_synced, timeout_ms)

    def _on_sync_refused(self, error: ClientError, *, unchanged: bool) -> None:
        code = error.error_code
        if code in _NOT_THIS_MEMBER and unchanged:
            assert code is not None
            # With ILLEGAL_GENERATION the broker may still know the member.
            keep = code is ErrorCode.ILLEGAL_GENERATION
            self._lose_generation(f"encountered {code.name} from SYNC_GROUP response", keep=keep)
        self._finish(error)

    def _on_synced(self, synced: SyncGroupResponse, *, unchanged: bool) -> None:
        status = self._status
        if synced.protocol_type not in (None, self._dependencies.protocol_type):
            self._finish(_inconsistent(f"the group has members of type {synced.protocol_type}"))
        elif not unchanged or status.state is not ClassicMemberState.COMPLETING_REBALANCE:
            # A heartbeat or a commit has shown that the group removed the member: rejoin at once.
            words = "the generation was lost during SyncGroup"
            self._finish(broker_error(ErrorCode.ILLEGAL_GENERATION, words))
        elif synced.protocol_name not in (None, status.protocol_name):
            chosen = f"SyncGroup chose {synced.protocol_name}"
            self._finish(_inconsistent(f"{chosen}, JoinGroup chose {status.protocol_name}"))
        else:
            status.on_synced()
            self._finish(bytes(synced.assignment))

    def _lose_generation(self, reason: str, *, keep: bool) -> None:
        self._dependencies.stop_heartbeats()
        self._status.reset(reason, keep_member_id=keep)

    def _finish(self, outcome: bytes | BaseException) -> None:
        assert self.outcome is None, f"{outcome!r} after {self.outcome!r}"
        self.outcome = outcome
        self._on_done()


def _inconsistent(words: str) -> ClientError:
    return broker_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, words)
