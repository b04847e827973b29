"""Steps that change the assignment of a member, in both group protocols.

The host runs the callbacks of the user in these steps, so they take place only inside its polls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.client.group.membership import MembershipHost, OnHostDone
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["AssignmentSteps"]


class AssignmentSteps:
    """Changes the host's partitions; each step calls `on_done` at its end, possibly at once."""

    __slots__ = ("_host",)

    def __init__(self, host: MembershipHost) -> None:
        self._host = host

    @property
    def owned(self) -> list[TopicPartition]:
        """The current assignment, in order."""
        return sorted(self._host.owned_partitions)

    def removed_by(self, assigned: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the owned partitions that a new assignment does not contain, in order."""
        return sorted(set(self._host.owned_partitions).difference(assigned))

    def assign(self, assigned: Collection[TopicPartition], on_done: OnHostDone) -> None:
        """Set the whole assignment; the user's callback receives the partitions that are new."""
        owned = set(self._host.owned_partitions)
        self._host.assign(assigned, [tp for tp in assigned if tp not in owned], on_done)

    def lose_all(self, on_done: OnHostDone) -> None:
        """Remove all partitions, because other members may own them already."""
        owned = self.owned
        if owned:
            self._host.lose(owned, on_done)
        else:
            on_done(None)

    def give_up_all(self, on_done: OnHostDone, *, is_member: bool) -> None:
        """Remove all partitions before the member leaves.

        Args:
            on_done: Called at the end of the step.
            is_member: Whether the partitions still belong to the member, so that the user's
                callback can commit their offsets.
        """
        owned = self.owned
        if owned and is_member:
            self._host.revoke(owned, on_done)
        else:
            self.lose_all(on_done)
