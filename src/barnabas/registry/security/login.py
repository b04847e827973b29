"""Logins of the registry's clients, which the brokers decide.

Name and password (Basic) or a token (Bearer) are proved by a SASL login at a broker with them. So
the registry has no users of its own, and a changed password or a deleted user counts here, too:
after a minute, for which a login is remembered. Wrong logins are answered after a second, and few
are tried at the same time.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from barnabas.client.aio.broker_login import (
    PASSWORD_MECHANISMS,
    is_login_accepted,
    password_login,
    without_login,
)
from barnabas.client.errors import ClientError
from barnabas.registry.errors import store_failed, unauthorized
from barnabas.registry.security.access import Caller
from barnabas.registry.shares import FairTurns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng

_REMEMBERED_MS = 60_000.0
_REMEMBERED_MAX = 10_000
_WRONG_S = 1.0
_ATTEMPTS_MAX = 8
_HEADER_CHARS_MAX = 16_384
_KEY_BYTES = 32
_BASIC, _BEARER = "basic", "bearer"


class LoginRules(NamedTuple):
    """What a login contains."""

    # The SASL mechanism of passwords.
    mechanism: str = "PLAIN"
    # The claim of a token that names the user; it must be the one that the brokers use.
    sub_claim: str = "sub"
    # How long the brokers have to decide (ms).
    timeout_ms: int = 10_000


class _Credentials(NamedTuple):
    """What a client gave: keys of a Kafka client, and the name of the user."""

    keys: Mapping[str, Any]
    user: str


class BrokerLogin:
    """Proves logins at the brokers; implements `Login`.

    Args:
        bootstrap: Addresses of brokers.
        client: The configuration of the registry's own clients: protocol and trusted certificates
            are used.
        rules: What a login contains.
        clock: Ends remembered logins.
        rng: Makes the key with which logins are remembered.
    """

    def __init__(
        self,
        bootstrap: str,
        client: Mapping[str, Any],
        rules: LoginRules,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._bootstrap = bootstrap
        self._client = without_login(client)
        is_for_passwords = rules.mechanism in PASSWORD_MECHANISMS
        self._mechanism = rules.mechanism if is_for_passwords else "PLAIN"
        self._sub_claim = rules.sub_claim
        self._timeout_ms = rules.timeout_ms
        self._clock = clock
        self._key = rng.token(_KEY_BYTES)
        # Principal and end (ms, monotonic clock) of proved logins, by the hash of their header.
        self._remembered: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        # Logins that are being proved, by the same hash.
        self._pending: dict[bytes, asyncio.Task[str]] = {}
        self._turns = FairTurns(_ATTEMPTS_MAX)

    async def caller(self, authorization: str | None, host: str) -> Caller:
        """Return the client that logged in."""
        if not authorization or len(authorization) > _HEADER_CHARS_MAX:
            raise unauthorized()
        data = authorization.encode("utf-8", "replace")
        digest = hashlib.blake2b(data, key=self._key).digest()
        known = self._remembered.get(digest)
        if known is not None and self._clock.monotonic_ms() < known[1]:
            return Caller(known[0], host)
        task = self._pending.get(digest)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._prove(authorization, host))
            self._pending[digest] = task
            task.add_done_callback(lambda _task: self._pending.pop(digest, None))
        principal = await asyncio.shield(task)
        self._remember(digest, principal)
        return Caller(principal, host)

    def _remember(self, digest: bytes, principal: str) -> None:
        self._remembered[digest] = (principal, self._clock.monotonic_ms() + _REMEMBERED_MS)
        self._remembered.move_to_end(digest)
        if len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    async def _prove(self, authorization: str, host: str) -> str:
        """Return the principal that a header proves."""
        async with self._turns.turn(host):
            credentials = self._credentials(authorization)
            if credentials is not None and await self._is_accepted(credentials):
                return f"User:{credentials.user}"
            await asyncio.sleep(_WRONG_S)
            raise unauthorized()

    def _credentials(self, authorization: str) -> _Credentials | None:
        """Return what a header contains; None if it is malformed."""
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == _BEARER:
            return _bearer(value.strip(), self._sub_claim)
        if scheme.lower() == _BASIC:
            return _basic(value.strip(), self._mechanism)
        return None

    async def _is_accepted(self, credentials: _Credentials) -> bool:
        try:
            return await is_login_accepted(
                self._bootstrap, self._client, credentials.keys, self._timeout_ms
            )
        except ClientError as error:
            raise store_failed(f"the brokers cannot check the login: {error}") from None


def _basic(value: str, mechanism: str) -> _Credentials | None:
    try:
        text = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    user, _, password = text.partition(":")
    if not (user and password) or "\0" in text:
        return None
    return _Credentials(password_login(user, password, mechanism), user)


def _bearer(token: str, sub_claim: str) -> _Credentials | None:
    """Return the login with a token; the broker checks its signature, so it is only read here."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    payload = parts[1] + "=" * (-len(parts[1]) % 4)
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload))
    except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError):
        return None
    user = claims.get(sub_claim) if isinstance(claims, dict) else None
    if not isinstance(user, str) or not user:
        return None
    keys = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": lambda: token}
    return _Credentials(keys, user)
