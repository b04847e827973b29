"""Users of a console, their roles, and the ways in which the console knows a user."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.console.access.roles import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.console.access.acting import ActingUser

# The name of the user that knows the password of the console.
PASSWORD_USER = "(password)"  # noqa: S105 - it is shown, and no password
# A name of a group begins with this character where roles are given.
GROUP_MARK = "@"


class User(NamedTuple):
    """A user that is logged in."""

    name: str
    role: Role
    # The way in which the user logged in, for the audit log.
    source: str
    # The name of the only cluster that the log-in is for; None for all clusters.
    cluster: str | None = None
    # The log-in at the cluster; None if the user has no account there.
    account: ActingUser | None = None


def role_of(roles: Mapping[str, Role], name: str, groups: Iterable[str] = ()) -> Role:
    """Return the greatest role of a user and of its groups; viewer if none has a role.

    Args:
        roles: Roles by the names of users, and of groups with a leading "@".
        name: The user.
        groups: The groups of the user.
    """
    found = [roles.get(name), *(roles.get(GROUP_MARK + group) for group in groups)]
    return max((each for each in found if each is not None), default=Role.VIEWER)
