"""Move a member from its current assignment to the coordinator's target (KIP-848).

The steps are commit, revoke and assign, in this order, each inside the user's polls. The heartbeat
that follows acknowledges the result. A newer target that arrives meanwhile is handled by the next
reconciliation.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.client.group.assignment_steps import AssignmentSteps
    from barnabas.client.group.consumer_protocol.topic_names import PartitionsById
    from barnabas.client.group.membership import MembershipHost, OnHostDone
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["Reconciliation"]


class _Step(Enum):
    """Steps of a reconciliation, in their order."""

    COMMIT = auto()
    REVOKE = auto()
    ASSIGN = auto()
    DONE = auto()


class Reconciliation:
    """One change of the assignment; each call of `next` starts one step."""

    __slots__ = ("_assigned", "_host", "_step", "_steps", "target")

    def __init__(
        self,
        host: MembershipHost,
        steps: AssignmentSteps,
        target: PartitionsById,
        assigned: list[TopicPartition],
    ) -> None:
        self._host = host
        self._steps = steps
        # The partitions that the member will own, by topic id; immutable.
        self.target = target
        # The same partitions with the names of their topics.
        self._assigned = assigned
        # The next step; moved when a step ends.
        self._step = _Step.COMMIT

    @property
    def is_done(self) -> bool:
        """Whether the assignment is applied and the user's callback has returned."""
        return self._step is _Step.DONE

    def next(self, on_done: OnHostDone) -> None:
        """Start the due step; `on_done` is called when it ends.

        A callback of the user that raises counts as called and is not repeated. The host handles
        errors of the commit: the partitions must be given up in time anyway.
        """

        def done(error: BaseException | None, following: _Step) -> None:
            self._step = following
            on_done(error)

        match self._step:
            case _Step.COMMIT:
                self._host.commit_before_revoke(
                    self._steps.removed_by(self._assigned),
                    lambda _error: done(None, _Step.REVOKE),
                )
            case _Step.REVOKE:
                revoked = self._steps.removed_by(self._assigned)
                if revoked:
                    self._host.revoke(revoked, lambda error: done(error, _Step.ASSIGN))
                else:
                    done(None, _Step.ASSIGN)
            case _Step.ASSIGN:
                self._steps.assign(self._assigned, lambda error: done(error, _Step.DONE))
            case _Step.DONE:
                raise AssertionError("a reconciliation that is done has no next step")
