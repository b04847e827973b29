"""Give up partitions before a join and accept them after it: the steps that run callbacks.

Eager members give up all partitions before they join. Cooperative members give up only the
partitions that the new assignment takes from them, after the join. They then rejoin so that other
members can get these partitions (KIP-429). A member that the group has removed loses its
partitions: other members may already own them, so nothing is committed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.group.assignors.assignor import RebalanceProtocol
from barnabas.client.group.user_code import UserCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.client.group.assignors.assignor import Assignment
    from barnabas.client.group.classic.member_state import MemberStatus
    from barnabas.client.group.membership import MembershipHost, OnHostDone
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["Handover"]


class Handover:
    """Changes the host's partitions step by step; each step calls `done`, possibly at once."""

    def __init__(
        self, host: MembershipHost, status: MemberStatus, protocol: RebalanceProtocol
    ) -> None:
        self._host = host
        self._status = status
        self._is_cooperative = protocol is RebalanceProtocol.COOPERATIVE
        # Whether the member is leaving; then an unfinished step must not change the host.
        self._has_ended = False

    def end(self) -> None:
        """Start no further step, and abandon the current one."""
        self._has_ended = True

    def prepare(self, done: OnHostDone) -> None:
        """Commit, then give up the partitions that must be given up before the join."""
        if self._status.is_reset:
            self._lose(done)
        else:
            # Ignore the result of the commit, which the host handles: the join continues either
            # way.
            self._host.commit_before_revoke(self._leaving(), lambda _error: self._give_up(done))

    def leave(self, done: OnHostDone) -> None:
        """Give up all partitions permanently, and abandon the current step."""
        self.end()
        owned = sorted(self._host.owned_partitions)
        if not owned:
            done(None)
        elif self._status.is_reset or self._status.is_rebalancing:
            self._host.lose(owned, done)
        else:
            self._host.revoke(owned, done)

    def complete(
        self,
        assignment: Assignment,
        on_assignment: Callable[[], None],
        done: OnHostDone,
    ) -> None:
        """Apply an assignment.

        Args:
            assignment: All partitions that this member owns from now on.
            on_assignment: Notifies the assignor, after the removed partitions were given up.
            done: Receives the first exception of a callback; the assignment is applied anyway.
        """
        assigned = sorted(assignment.partitions)
        gone = sorted(set(self._host.owned_partitions) - set(assigned))
        take = partial(self._take, assigned, on_assignment, done)
        if not self._is_cooperative or not gone:
            take(None)
            return

        def on_committed(_error: BaseException | None) -> None:
            if self._has_ended:
                return
            if self._status.is_reset:
                # The group removed the member during the commit; all partitions are lost before the
                # next join.
                done(None)
                return
            words = ", ".join(str(tp) for tp in gone)
            self._status.request_rejoin(f"need to revoke partitions [{words}] and re-join")
            self._host.revoke(gone, take)

        # Commit again, because records of these partitions were returned since the commit before
        # the join. Java's consumer does not; there the next owner reads these records again.
        self._host.commit_before_revoke(gone, on_committed)

    def _take(
        self,
        assigned: Collection[TopicPartition],
        on_assignment: Callable[[], None],
        done: OnHostDone,
        error: BaseException | None,
    ) -> None:
        if self._has_ended:
            return
        with UserCode() as code:
            on_assignment()
        first = error or code.error
        owned = set(self._host.owned_partitions)
        added = [tp for tp in assigned if tp not in owned]
        self._host.assign(assigned, added, lambda error: done(first or error))

    def _give_up(self, done: OnHostDone) -> None:
        if self._has_ended:
            return
        if self._status.is_reset:
            # The group removed the member during the commit.
            self._lose(done)
            return
        leaving = self._leaving()
        # Eager members call the callback in every rebalance, even without partitions.
        if self._is_cooperative and not leaving:
            done(None)
        else:
            self._host.revoke(leaving, done)

    def _leaving(self) -> list[TopicPartition]:
        """Return what is given up before a join.

        Eager members give up all partitions, cooperative ones only those no longer subscribed to.
        """
        owned = sorted(self._host.owned_partitions)
        if not self._is_cooperative:
            return owned
        subscribed = set(self._host.subscribed_topics)
        return [tp for tp in owned if tp.topic not in subscribed]

    def _lose(self, done: OnHostDone) -> None:
        owned = sorted(self._host.owned_partitions)
        if owned:
            self._host.lose(owned, done)
        else:
            done(None)
