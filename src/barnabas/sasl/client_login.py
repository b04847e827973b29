"""Credentials of this side, and the exchanges that are made with them."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Protocol

from barnabas.sasl.plain import PLAIN, PlainClient
from barnabas.sasl.scram import ScramClient
from barnabas.sasl.scram_keys import SCRAM_MECHANISMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.executor import Executor
    from barnabas.runtime.rng import Rng
    from barnabas.sasl.mechanism import ClientMechanism, SaslError

    # Called with (exchange, None) or (None, error).
    OnBegun = Callable[[ClientMechanism | None, SaslError | None], None]

_NONCE_BYTES = 24
# Mechanisms with a user name and a password.
PASSWORD_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)


class ClientLogin(Protocol):
    """Mechanism and credentials with which a client's connections log in."""

    @property
    def mechanism(self) -> str:
        """Name of the mechanism."""
        ...

    @property
    def subject(self) -> str:
        """The user of the login, for error messages. It contains no secret."""
        ...

    @property
    def executor(self) -> Executor:
        """Runs slow work outside of the event loop."""
        ...

    def begin(self, on_begun: OnBegun) -> None:
        """Begin an exchange. `on_begun` is called once, perhaps before this returns."""
        ...

    def note_failure(self, reason: str) -> None:
        """Handle a failed login. `reason` has the address of the peer, and no secret."""
        ...


class PasswordLogin:
    """A login with a user name and a password, by PLAIN or SCRAM."""

    __slots__ = ("_extensions", "_password", "_rng", "_user", "executor", "mechanism")

    def __init__(
        self,
        mechanism: str,
        user_and_password: tuple[str, str],
        executor: Executor,
        rng: Rng,
        extensions: dict[str, str] | None = None,
    ) -> None:
        """Store the credentials.

        Args:
            mechanism: one of PASSWORD_MECHANISMS.
            user_and_password: the credentials.
            executor: runs slow work outside of the event loop.
            rng: randomness of nonces.
            extensions: extensions of SCRAM's first message.
        """
        assert mechanism in PASSWORD_MECHANISMS, mechanism
        self.mechanism = mechanism
        self.executor = executor
        self._user, self._password = user_and_password
        self._rng = rng
        self._extensions = extensions or {}

    @property
    def subject(self) -> str:
        """The user of the login, for error messages."""
        return f"user {self._user!r}"

    def begin(self, on_begun: OnBegun) -> None:
        """Begin an exchange at once."""
        on_begun(self._new(), None)

    def note_failure(self, reason: str) -> None:
        """Do nothing: the caller of the connection gets the reason."""

    def _new(self) -> ClientMechanism:
        scram = SCRAM_MECHANISMS.get(self.mechanism)
        if scram is None:
            return PlainClient(self._user, self._password)
        nonce = urlsafe_b64encode(self._rng.token(_NONCE_BYTES)).decode()
        return ScramClient(scram, self._user, self._password, nonce, self._extensions)
