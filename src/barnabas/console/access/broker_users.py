"""Log-ins of the brokers' users: the brokers check their names and passwords."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.aio.broker_login import is_login_accepted, password_login, without_login
from barnabas.console.access.users import ActingUser, User, role_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.console.access.sessions import Session
    from barnabas.console.access.users import LoginSettings
    from barnabas.runtime.clock import Clock

_TIMEOUT_MS = 10_000
# How long a wrong log-in is not answered (s).
_WRONG_S = 1.0
# A change needs a log-in that the brokers accepted at most this time ago.
_PROOF_MS = 60_000.0
_NAME_MAX = 200


class Brokers(NamedTuple):
    """The brokers that prove users."""

    # The name of the cluster.
    name: str
    bootstrap: str
    # The configuration of the console's own clients.
    client: Mapping[str, str]


async def log_in_at_brokers(
    brokers: Brokers, rules: LoginSettings, name: str, password: str
) -> User | None:
    """Return a user whose password the brokers accept; None if they do not.

    Args:
        brokers: The brokers.
        rules: The mechanism and the roles.
        name: The name of the user.
        password: The password of the user.

    Raises:
        ClientError: The brokers cannot decide now.
    """
    login = password_login(name, password, rules.broker_users)
    account = ActingUser(name, tuple(login.items()))
    if len(name) > _NAME_MAX or not password or not await _is_accepted(brokers, account):
        await asyncio.sleep(_WRONG_S)
        return None
    return User(name, role_of(rules.roles, name), "broker", brokers.name, account)


async def is_still_accepted(brokers: Brokers, session: Session, clock: Clock) -> bool:
    """Return whether the brokers still accept the user of a session that sends a change.

    Users that the brokers do not know are accepted.

    Raises:
        ClientError: The brokers cannot decide now.
    """
    account = session.user.account
    now_ms = clock.monotonic_ms()
    if account is None or now_ms - session.proved_ms < _PROOF_MS:
        return True
    if not await _is_accepted(brokers, account):
        return False
    session.proved_ms = now_ms
    return True


async def _is_accepted(brokers: Brokers, account: ActingUser) -> bool:
    client = without_login(brokers.client)
    return await is_login_accepted(brokers.bootstrap, client, dict(account.client), _TIMEOUT_MS)
