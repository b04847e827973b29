"""Claims of tokens and their checks, and tokens without a signature (RFC 7515, RFC 7519).

The checks are those of Kafka's validators. As in Kafka, unsecured tokens (`alg: none`) are for
development only.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.sasl.mechanism import Identity, SaslError

if TYPE_CHECKING:
    from collections.abc import Mapping


_HEADER = {"alg": "none"}
_PARTS = 3


def make_unsecured(claims: dict[str, Any]) -> str:
    """Return a token with these claims."""
    return f"{_encoded(_HEADER)}.{_encoded(claims)}."


def read_unsecured(token: str) -> dict[str, Any]:
    """Return the claims of a token without a signature.

    Raises:
        SaslError: the token is malformed, or has a signature.
    """
    parts = token.split(".")
    if len(parts) != _PARTS or parts[2]:
        raise SaslError("the token is not an unsecured one")
    if _decoded(parts[0]).get("alg") != "none":
        raise SaslError("the algorithm of an unsecured token is none")
    return _decoded(parts[1])


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of any token, unverified. Empty if it is no JSON Web Token."""
    try:
        return _decoded(token.split(".")[1])
    except (IndexError, SaslError):
        return {}


def _encoded(value: dict[str, Any]) -> str:
    data = json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(part: str) -> dict[str, Any]:
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise SaslError("the token is not JSON in base64") from error
    if not isinstance(found, dict):
        raise SaslError("a part of the token is no JSON object")
    return found


_MS_PER_S = 1000


class ClaimRules(msgspec.Struct, frozen=True):
    """Required values of a token's claims."""

    # Accepted audiences. Empty: any, or none.
    audiences: tuple[str, ...] = ()
    # None: any issuer, or none.
    issuer: str | None = None
    # Difference of the clocks that is accepted, in ms.
    skew_ms: int = 30_000
    # Names of the claims.
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    # Scopes that a token must have.
    scopes: tuple[str, ...] = ()
    # Whether the time of issue must be there.
    needs_issue_time: bool = True


def identity_of(claims: Mapping[str, Any], rules: ClaimRules, now_ms: int) -> Identity:
    """Return the user of a token whose signature is checked.

    Args:
        claims: the claims of the token.
        rules: their required values.
        now_ms: wall clock time, in ms.

    Raises:
        SaslError: a claim is missing or not accepted. The reason has no other part of the token.
    """
    expiry_ms = _time_ms(claims, "exp", is_needed=True)
    assert expiry_ms is not None
    _time_ms(claims, "iat", is_needed=rules.needs_issue_time)
    if now_ms - rules.skew_ms >= expiry_ms:
        raise SaslError("the token has expired")
    begin_ms = _time_ms(claims, "nbf", is_needed=False)
    if begin_ms is not None and now_ms + rules.skew_ms < begin_ms:
        raise SaslError("the token is not valid yet")
    _check_audience(claims.get("aud"), rules.audiences)
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise SaslError("the issuer of the token is not sasl.oauthbearer.expected.issuer")
    _check_scopes(claims.get(rules.scope_claim), rules)
    name = claims.get(rules.subject_claim)
    if not isinstance(name, str) or not name.strip():
        raise SaslError(f"the token has no claim {rules.subject_claim} with a user name")
    return Identity(name, expiry_ms=expiry_ms)


def _time_ms(claims: Mapping[str, Any], name: str, *, is_needed: bool) -> int | None:
    """Return a time of the claims in ms; None if it may be missing, and is."""
    value = claims.get(name)
    if value is None and not is_needed:
        return None
    # A year far in the future must not overflow the timers.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise SaslError(f"the token has no claim {name} with a time")
    return int(value * _MS_PER_S)


def _check_audience(value: object, accepted: tuple[str, ...]) -> None:
    if not accepted:
        return
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not any(each in accepted for each in found):
        raise SaslError("the audience of the token is not in sasl.oauthbearer.expected.audience")


def _check_scopes(value: object, rules: ClaimRules) -> None:
    # A value of another type has no scopes, as in Kafka.
    found: list[str] = []
    if isinstance(value, str):
        found = value.split()
    elif isinstance(value, list):
        if not all(isinstance(each, str) for each in value):
            raise SaslError(f"the claim {rules.scope_claim} of the token is no list of texts")
        found = value
    missing = [each for each in rules.scopes if each not in found]
    if missing:
        raise SaslError(f"the token does not have the scope {' '.join(missing)}")
