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
        # The values at the last call of `check`.
        self._role: Role | None = None
        self._epoch = -1

    def check(self, core: RaftCore) -> bool:
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
            _log.info(
                "Quorum role changed: epoch=%d role=%s", core.epoch, _words(role, core.is_voter)
            )
        return True


def _words(role: Role, is_voter: bool) -> str:
    match role:
        case Unattached():
            return "unattached"
        case Prospective():
            return "prospective"
        case Candidate():
            return "candidate"
        case Follower():
            return f"{'follower' if is_voter else 'observer'} leader={role.leader_id}"
        case Leader():
            return f"leader elected_by={','.join(map(str, role.granting_voters))}"
        case Resigned():
            return "resigned"
