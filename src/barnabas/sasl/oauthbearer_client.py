"""The client's side of OAUTHBEARER (RFC 7628)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.sasl.errors import SaslError
from barnabas.sasl.oauthbearer_messages import ACKNOWLEDGMENT, bearer_message

if TYPE_CHECKING:
    from collections.abc import Callable


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
