"""Tokens without a signature (RFC 7515, `alg: none`), for development only, as in Kafka."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from barnabas.sasl.errors import SaslError

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
