"""Logs the role changes of this replica at level INFO."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.raft.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached

if TYPE_CHECKING:
    from barnabas.raft.core.raft_core import RaftCore
    from barnabas.raft.core.roles import Role

_log = logging.getLogger(__name__)


class RoleLog:
    """Compares the role with the last logged one after each step."""

    __slots__ = ("_epoch", "_role")

    def __init__(self) -> None:
        # The values at the last call of `look`.
        self._role: Role | None = None
        self._epoch = -1

    def look(self, core: RaftCore) -> bool:
        """Log the role if its kind or the epoch changed.

        Returns:
            Whether the role object has changed.
        """
        role = core.role
        if role is self._role:
            return False
        before, self._role = self._role, role
        if type(role) is not type(before) or core.epoch != self._epoch:
            self._epoch = core.epoch
            _log.info("Quorum epoch %d: this node %s", core.epoch, _words(role, core.is_voter))
        return True


def _words(role: Role, is_voter: bool) -> str:
    match role:
        case Unattached():
            return "knows no leader"
        case Prospective():
            return "asks whether it could be elected"
        case Candidate():
            return "asks for votes"
        case Follower():
            return f"{'follows' if is_voter else 'observes'} {role.leader_id}"
        case Leader():
            return f"leads, elected by {', '.join(map(str, role.granting_voters))}"
        case Resigned():
            return "led, and leads no more"
