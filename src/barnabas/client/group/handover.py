"""Giving partitions up before a join and taking them after it: the steps in which callbacks run.

Eager members give up all before they join. Cooperative ones give up only what the new assignment
takes from them, after the join, and then join once more so that others can have it (KIP-429). A
member that was thrown out loses what it had: others may own it already, so nothing is committed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.group.assignors.assignor import RebalanceProtocol
from barnabas.client.group.user_code import UserCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.client.group.assignors.assignor import Assignment
    from barnabas.client.group.member_state import MemberStatus
    from barnabas.client.group.membership import MembershipHost, OnHostDone
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["Handover"]


class Handover:
    """Moves the host's partitions; one step at a time, each ends with `done`, maybe at once."""

    def __init__(
        self, host: MembershipHost, status: MemberStatus, protocol: RebalanceProtocol
    ) -> None:
        self._host = host
        self._status = status
        self._is_cooperative = protocol is RebalanceProtocol.COOPERATIVE
        # Once the member leaves, what it was about to do must not touch the host any more.
        self._has_ended = False

    def end(self) -> None:
        """Begin no further step; the one under way ends without going on."""
        self._has_ended = True

    def prepare(self, done: OnHostDone) -> None:
        """Commit, then give up what must be given up before the join."""
        if self._status.is_reset:
            self._lose(done)
        else:
            # How the commit ended is the host's to tell: the join goes on either way.
            self._host.commit_before_revoke(self._leaving(), lambda _error: self._give_up(done))

    def leave(self, done: OnHostDone) -> None:
        """Give up everything, for good; nothing else goes on."""
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
        """Take an assignment over.

        Args:
            assignment: all that this member owns from now on.
            on_assignment: tells the assignor, after what moved away was given up.
            done: gets the first error of a callback; the assignment counts in spite of it.
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
                # Thrown out while the commit was under way: all is lost before the next join.
                done(None)
                return
            words = ", ".join(str(tp) for tp in gone)
            self._status.request_rejoin(f"need to revoke partitions [{words}] and re-join")
            self._host.revoke(gone, take)

        # Records of these were handed out since the commit before the join; Java's consumer leaves
        # them to be read again by the next owner.
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
            # Thrown out while the commit was under way.
            self._lose(done)
            return
        leaving = self._leaving()
        # Eager members hear of every rebalance, even when they own nothing.
        if self._is_cooperative and not leaving:
            done(None)
        else:
            self._host.revoke(leaving, done)

    def _leaving(self) -> list[TopicPartition]:
        """What is given up before a join: everything, or what is not subscribed to any more."""
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
