"""Both sides of OAUTHBEARER, and their messages (RFC 7628).

The client sends a token. An error of the server needs a confirmation of the client.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from barnabas.sasl.mechanism import SaslError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.sasl.mechanism import Identity


OAUTHBEARER: Final = "OAUTHBEARER"
_SEPARATOR = "\x01"
# The client's message after an error of the server.
ACKNOWLEDGMENT: Final = b"\x01"
# The status that Kafka's servers send with any error.
INVALID_TOKEN: Final = '{"status":"invalid_token"}'  # noqa: S105 - not a password
_TOKEN = re.compile(r"[-_.~+/A-Za-z0-9]+=*")
_KEY = re.compile(r"[A-Za-z]+")
# The token and extensions. Clients without a login choose their number.
_PAIRS_MAX = 100


class BearerMessage(msgspec.Struct, frozen=True):
    """First message of a client."""

    token: str
    # Empty if the client sent none.
    authorization_id: str
    extensions: dict[str, str]


def parse_bearer(message: bytes) -> BearerMessage:
    """Parse the first message of a client.

    Raises:
        SaslError: the message is malformed.
    """
    try:
        text = message.decode()
    except UnicodeDecodeError as error:
        raise _malformed("it is not UTF-8") from error
    header, separator, rest = text.partition(_SEPARATOR)
    flag, _, authorization = header.partition(",")
    name, comma, nothing = authorization.partition(",")
    if not separator or flag not in ("n", "y") or not comma or nothing:
        raise _malformed("its header is not valid")
    if name and not name.startswith("a="):
        raise _malformed("its header is not valid")
    if not rest.endswith(_SEPARATOR * 2):
        raise _malformed("it has no end")
    pairs: dict[str, str] = {}
    if rest.count(_SEPARATOR) > _PAIRS_MAX + 1:
        raise _malformed(f"it has more than {_PAIRS_MAX} keys")
    for part in rest[:-2].split(_SEPARATOR):
        key, equals, value = part.partition("=")
        if not equals or not _KEY.fullmatch(key) or key in pairs:
            raise _malformed("a key is not valid")
        pairs[key] = value
    kind, _, token = pairs.pop("auth", "").partition(" ")
    token = token.strip()
    if kind.lower() != "bearer" or not _TOKEN.fullmatch(token):
        raise _malformed("it has no bearer token")
    escaped = name[2:]
    return BearerMessage(token, escaped.replace("=2C", ",").replace("=3D", "="), pairs)


def bearer_message(token: str, extensions: dict[str, str]) -> bytes:
    """Return the first message of a client."""
    pairs = "".join(f"{key}={value}{_SEPARATOR}" for key, value in extensions.items())
    return f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{pairs}{_SEPARATOR}".encode()


def check_extensions(extensions: dict[str, str]) -> None:
    """Check extensions that this side wants to send.

    Raises:
        ValueError: a key or a value is not allowed. The message does not contain the value.
    """
    for key, value in extensions.items():
        if key == "auth" or not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is not allowed as a SASL extension: use letters only")
        if not all(each in "\t\r\n" or " " <= each <= "~" for each in value):
            raise ValueError(f"the value of the SASL extension {key} has control characters")


def _malformed(why: str) -> SaslError:
    text = f"Invalid OAUTHBEARER client first message: {why}"
    return SaslError(text, text)


class OAuthBearerServer:
    """One exchange."""

    __slots__ = ("_rejection", "_validate", "claimed_name", "identity")

    def __init__(self, validate: Callable[[str], Identity]) -> None:
        """Begin an exchange.

        Args:
            validate: returns the identity of a token, or raises SaslError.
        """
        self._validate = validate
        # Why the token was rejected; None before that.
        self._rejection: str | None = None
        self.identity: Identity | None = None
        self.claimed_name: str | None = None

    def respond(self, message: bytes) -> bytes:
        """Check the token. After the error of a rejected token, the next message fails.

        Raises:
            SaslError: the message is malformed, or the token was rejected before.
        """
        if self._rejection is not None:
            raise SaslError(self._rejection, INVALID_TOKEN)
        bearer = parse_bearer(message)
        try:
            identity = self._validate(bearer.token)
        except SaslError as error:
            self._rejection = error.reason
            return INVALID_TOKEN.encode()
        self.claimed_name = identity.name
        if bearer.authorization_id not in ("", identity.name):
            text = (
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
            raise SaslError(text, text)
        self.identity = identity
        return b""


class OAuthBearerClient:
    """One exchange."""

    __slots__ = ("_error", "_extensions", "_token", "is_complete")

    def __init__(self, token: str, extensions: dict[str, str] | None = None) -> None:
        self._token = token
        self._extensions = extensions or {}
        # The error of the server; None before that.
        self._error: str | None = None
        self.is_complete = False

    def first(self) -> bytes:
        """Return the message with the token."""
        return bearer_message(self._token, self._extensions)

    def prepare(self, message: bytes) -> Callable[[], None] | None:
        """Return None: there is no slow work."""
        return None

    def respond(self, message: bytes) -> bytes | None:
        """Accept the empty response, or confirm an error.

        Raises:
            SaslError: the server has accepted the token after an error.
        """
        if self._error is not None:
            raise SaslError(f"the server has rejected the token: {self._error}")
        if message:
            self._error = message.decode("utf-8", "replace")[:200]
            return ACKNOWLEDGMENT
        self.is_complete = True
        return None
