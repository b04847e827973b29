"""Validation of bearer tokens: the signature by the keys of the issuer, then the claims."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jwt import PyJWK, get_unverified_header
from jwt.api_jws import decode_complete
from jwt.exceptions import PyJWTError

from barnabas.sasl.errors import SaslError
from barnabas.sasl.token_claims import identity_of

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock
    from barnabas.sasl.server_mechanism import Identity
    from barnabas.sasl.token_claims import ClaimRules
    from barnabas.server.security.sasl.issuer_keys import IssuerKeys

# Algorithms by type of key. `none` and algorithms with a shared secret are not allowed.
_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
# Maximum number of keys that are tried for a token without a key id.
_TRIED_MAX = 10
# Maximum length of a token. Usual tokens have a few kilobytes.
_TOKEN_CHARS_MAX = 64 * 1024


class SignedTokens:
    """Returns the user of a token."""

    __slots__ = ("_clock", "_keys", "_rules")

    def __init__(self, keys: IssuerKeys, rules: ClaimRules, clock: Clock) -> None:
        self._keys = keys
        self._rules = rules
        self._clock = clock

    def validate(self, token: str) -> Identity:
        """Check signature and claims.

        Raises:
            SaslError: the token is not accepted.
        """
        if len(token) > _TOKEN_CHARS_MAX:
            raise SaslError("the token is too long")
        try:
            header = get_unverified_header(token)
        except (PyJWTError, ValueError, RecursionError) as error:
            raise SaslError("the token is no signed JSON Web Token") from error
        return identity_of(self._claims(token, header), self._rules, self._clock.wall_ms())

    def _claims(self, token: str, header: dict[str, Any]) -> dict[str, Any]:
        key_id, algorithm = header.get("kid"), header.get("alg")
        keys = self._keys.find(None if key_id is None else str(key_id))
        if not self._keys.is_loaded:
            raise SaslError("the keys of the issuer are not loaded")
        if not keys:
            raise SaslError("the token is signed with an unknown key")
        for key in keys[:_TRIED_MAX]:
            payload = _verified(token, str(algorithm), key)
            if payload is not None:
                return _object(payload)
        raise SaslError("the signature of the token is wrong")


def _verified(token: str, algorithm: str, key: PyJWK) -> bytes | None:
    """Return the payload if the key has signed the token, else None."""
    if algorithm not in _ALGORITHMS.get(str(key.key_type), ()):
        return None
    try:
        payload: bytes = decode_complete(token, key.key, algorithms=[algorithm])["payload"]
    except (PyJWTError, ValueError, TypeError):
        return None
    return payload


def _object(payload: bytes) -> dict[str, Any]:
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise SaslError("the claims of the token are no JSON") from error
    if not isinstance(found, dict):
        raise SaslError("the claims of the token are no JSON object")
    return found
