"""Login of a node at other nodes: brokers at brokers, and all nodes at controllers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.sasl.client_login import PasswordLogin
from barnabas.server.configs.listener_sasl import LoginSettings

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.executor import Executor
    from barnabas.runtime.loop import Runtime
    from barnabas.sasl.client_login import ClientLogin, OnBegun
    from barnabas.server.configs.oauth_settings import TokenLoginSettings


_log = logging.getLogger(__name__)

# Minimum time between log lines of failed logins. Nodes reconnect immediately.
_LOG_MS = 10_000.0


class NodeLogin:
    """Login of a node, which is repeated until it succeeds. Failures are logged."""

    def __init__(self, login: ClientLogin, clock: Clock) -> None:
        """Create the node login.

        Args:
            login: the credentials of the node.
            clock: limits the rate of log lines.
        """
        self._login = login
        self._clock = clock
        # Time (ms, monotonic) from which the next failure is logged.
        self._next_line_ms = 0.0

    @property
    def mechanism(self) -> str:
        """Name of the mechanism."""
        return self._login.mechanism

    @property
    def subject(self) -> str:
        """The user or mechanism of the login, for error messages."""
        return self._login.subject

    @property
    def executor(self) -> Executor:
        """Runs slow work outside of the event loop."""
        return self._login.executor

    def begin(self, on_begun: OnBegun) -> None:
        """Begin an exchange. `on_begun` is called once, perhaps before this returns."""
        self._login.begin(on_begun)

    def note_failure(self, reason: str) -> None:
        """Log a failed login, unless a failure was logged recently."""
        self._login.note_failure(reason)
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_line_ms:
            self._next_line_ms = now_ms + _LOG_MS
            _log.warning("Login at another node failed: %s", reason)


def node_login(settings: LoginSettings | TokenLoginSettings, runtime: Runtime) -> ClientLogin:
    """Return the credentials with which a node logs in at a listener of other nodes."""
    if isinstance(settings, LoginSettings):
        credentials = (settings.username, settings.password)
        login: ClientLogin = PasswordLogin(
            settings.mechanism, credentials, runtime.executor, runtime.rng
        )
    else:
        # Imported only for nodes that log in by tokens.
        from barnabas.sasl.token_login import TokenLogin

        login = TokenLogin(settings.source, settings.subject, runtime)
    return NodeLogin(login, runtime.clock)
