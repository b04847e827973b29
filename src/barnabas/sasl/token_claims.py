"""Checks of a token's claims, as Kafka's validators make them (RFC 7519)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.sasl.errors import SaslError
from barnabas.sasl.server_mechanism import Identity

if TYPE_CHECKING:
    from collections.abc import Mapping

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
