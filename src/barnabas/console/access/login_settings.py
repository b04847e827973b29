"""The settings of the log-ins of a console."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.console.access.roles import Role


@dataclass(frozen=True, slots=True)
class LoginSettings:
    """The ways in which users log in, and their roles."""

    # None: one-time passwords, printed on the terminal, unless there is another way to log in.
    password: str | None = None
    # The SASL mechanism of users of the brokers, who log in by name and password; "" for none.
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
