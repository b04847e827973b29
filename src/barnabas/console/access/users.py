"""Users of a console: their roles, their accounts at the brokers, and the settings of log-ins."""

from __future__ import annotations

import enum
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Role(enum.IntEnum):
    """What a user may do; a greater role may do all that a smaller one may."""

    # Read all pages.
    VIEWER = 1
    # Change topics, groups and configs, and write messages.
    OPERATOR = 2
    # Delete, and change ACLs, users and other parts of security.
    ADMIN = 3

    @property
    def title(self) -> str:
        """The name that users read and write."""
        return self.name.lower()


class ActingUser(NamedTuple):
    """A user with whose own rights the console acts on a cluster."""

    name: str
    # Keys of the client that replace those of the console, such as the password.
    client: tuple[tuple[str, str], ...]


# The user of the request that the current task handles; None for the console's own rights.
acting_user: ContextVar[ActingUser | None] = ContextVar("acting_user", default=None)


@dataclass(frozen=True, slots=True)
class LoginSettings:
    """The ways in which users log in, and their roles."""

    # None: one-time passwords, printed on the terminal, unless there is another way to log in.
    password: str | None = None
    # The SASL mechanism by which users of the brokers log in; "" for no such users.
    broker_users: str = ""
    # Whether the console uses the cluster with the rights of the user of the brokers.
    acts_as_user: bool = False
    # The header in which a trusted proxy names the user, and that of the groups; "" for none.
    user_header: str = ""
    groups_header: str = ""
    # Addresses and networks of trusted proxies.
    trusted_proxies: tuple[str, ...] = ()
    # Roles by the names of users, and of groups with a leading "@".
    roles: Mapping[str, Role] = field(default_factory=dict)

    @property
    def has_password(self) -> bool:
        """Whether a user may log in by the password of the console."""
        return self.password is not None or not (self.broker_users or self.user_header)

    @property
    def knows_users(self) -> bool:
        """Whether the console can tell its users apart."""
        return bool(self.broker_users or self.user_header)


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
