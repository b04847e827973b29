"""Give up partitions before a join and apply the assignment after it, in a classic group.

Eager members give up all partitions before they join. Cooperative members give up only the
partitions that the new assignment takes from them, after the join. They then rejoin so that other
members can get these partitions (KIP-429). A member that the group has removed loses its
partitions: other members may already own them, so nothing is committed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.group.assignment_steps import AssignmentSteps
from barnabas.client.group.assignors.assignor import RebalanceProtocol
from barnabas.client.user_code import UserCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.client.group.assignors.assignor import Assignment
    from barnabas.client.group.classic.classic_member_state import ClassicMemberStatus
    from barnabas.client.group.membership import MembershipHost, OnHostDone
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["PartitionTransfer"]


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
