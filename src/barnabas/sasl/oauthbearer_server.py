"""The server's side of OAUTHBEARER (RFC 7628): a token, and an error that the client confirms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.sasl.errors import SaslError
from barnabas.sasl.oauthbearer_messages import INVALID_TOKEN, parse_bearer

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.sasl.server_mechanism import Identity


class OAuthBearerServer:
    """One exchange."""

    __slots__ = ("_rejection", "_validate", "claimed_name", "identity")

    def __init__(self, validate: Callable[[str], Identity]) -> None:
        """Args:
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
