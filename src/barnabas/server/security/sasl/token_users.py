"""Delegation tokens as users of SCRAM: the name is the token id, the password the HMAC (KIP-48)."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from barnabas.metadata.credentials import is_expired, principal_parts, token_hmac
from barnabas.network.principal import USER
from barnabas.sasl.scram_keys import (
    ITERATIONS_MIN,
    credential_of,
    printable_salt,
    salted_password,
)
from barnabas.sasl.scram_messages import base64_text
from barnabas.sasl.scram_server import ScramUser
from barnabas.sasl.server_mechanism import Identity

if TYPE_CHECKING:
    from barnabas.metadata.credentials import Tokens
    from barnabas.runtime.clock import Clock
    from barnabas.sasl.scram_keys import ScramCredential, ScramMechanism

# The credentials that are kept. Making one takes a few milliseconds.
KEPT_MAX = 10_000


class TokenUsers:
    """Makes the credentials of tokens when clients log in, and keeps the latest.

    The salt is made from the HMAC, so that a token has the same credential on all nodes.
    """

    __slots__ = ("_clock", "_kept", "_secret_key")

    def __init__(self, secret_key: str, clock: Clock) -> None:
        """Args:
        secret_key: `delegation.token.secret.key`; empty if tokens are switched off.
        clock: its wall clock decides which tokens have expired.
        """
        self._secret_key = secret_key
        self._clock = clock
        # Credentials by mechanism and token id; the latest use is at the end.
        self._kept: OrderedDict[tuple[ScramMechanism, str], ScramCredential] = OrderedDict()

    def find(self, tokens: Tokens, mechanism: ScramMechanism, token_id: str) -> ScramUser | None:
        """Return the credential of a token and its owner.

        None if there is no such token, if it has expired, or if the owner is no user. Kafka accepts
        an expired token until it is removed.
        """
        token = tokens.get(token_id) if self._secret_key else None
        if token is None or is_expired(token, self._clock.wall_ms()):
            return None
        kind, name = principal_parts(token.owner)
        if kind != USER:
            # Kafka logs the client in as the user of this name, which is another user.
            return None
        identity = Identity(name, is_token=True, expiry_ms=token.expiration_timestamp)
        return ScramUser(self._credential(mechanism, token_id), identity)

    def _credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        key = (mechanism, token_id)
        found = self._kept.get(key)
        if found is None:
            secret = token_hmac(self._secret_key, token_id)
            salt = printable_salt(mechanism.hmac(secret, b"salt"))
            salted = salted_password(mechanism, base64_text(secret), salt, ITERATIONS_MIN)
            found = self._kept[key] = credential_of(mechanism, salted, salt, ITERATIONS_MIN)
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return found
