"""From the assignment that a member has to the one that the coordinator wants (KIP-848).

Commit, revoke, assign, in this order, each within the user's polls; the heartbeat that follows
acknowledges. A newer target that arrives meanwhile waits for the next reconciliation.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.client.group.consumer_protocol_topics import PartitionsById
    from barnabas.client.group.membership import MembershipHost, OnHostDone
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["Reconciliation"]


class _Step(Enum):
    COMMIT = auto()
    REVOKE = auto()
    ASSIGN = auto()
    DONE = auto()


class Reconciliation:
    """One change of assignment; `next` starts one step, and is called again when that is done."""

    __slots__ = ("_assigned", "_host", "_step", "target")

    def __init__(
        self, host: MembershipHost, target: PartitionsById, assigned: list[TopicPartition]
    ) -> None:
        self._host = host
        # What the member will own, by topic id; does not change.
        self.target = target
        self._assigned = assigned
        self._step = _Step.COMMIT

    @property
    def is_done(self) -> bool:
        """Whether the assignment was taken and the user's callback returned."""
        return self._step is _Step.DONE

    def next(self, on_done: OnHostDone) -> None:
        """Start the step that is due; the one after it is due when this one is done.

        A callback of the user that raises has been called all the same: it is not repeated. How the
        commit ended is the host's to tell: the partitions have to be given back in time.
        """

        def done(error: BaseException | None, following: _Step) -> None:
            self._step = following
            on_done(error)

        match self._step:
            case _Step.COMMIT:
                self._host.commit_before_revoke(
                    self._revoked(), lambda _error: done(None, _Step.REVOKE)
                )
            case _Step.REVOKE:
                revoked = self._revoked()
                if revoked:
                    self._host.revoke(revoked, lambda error: done(error, _Step.ASSIGN))
                else:
                    done(None, _Step.ASSIGN)
            case _Step.ASSIGN:
                owned = set(self._host.owned_partitions)
                added = [tp for tp in self._assigned if tp not in owned]
                self._host.assign(self._assigned, added, lambda error: done(error, _Step.DONE))
            case _Step.DONE:
                raise AssertionError("a reconciliation that is done has no next step")

    def _revoked(self) -> list[TopicPartition]:
        wanted = set(self._assigned)
        return sorted(tp for tp in self._host.owned_partitions if tp not in wanted)
