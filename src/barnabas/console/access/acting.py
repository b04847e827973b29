"""The user with whose rights the console asks the brokers."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple


class ActingUser(NamedTuple):
    """A user with whose own rights the console acts on a cluster."""

    name: str
    # Keys of the client that replace those of the console, such as the password.
    client: tuple[tuple[str, str], ...]


# The user of the request that the current task handles; None for the console's own rights.
acting_user: ContextVar[ActingUser | None] = ContextVar("acting_user", default=None)
