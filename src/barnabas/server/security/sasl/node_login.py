"""Login of a node at other nodes: brokers at brokers, and all nodes at controllers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.sasl.client_login import PasswordLogin

if TYPE_CHECKING:
    from barnabas.runtime.loop import Runtime
    from barnabas.sasl.client_login import ClientLogin
    from barnabas.server.configs.security.listener_sasl import LoginSettings


_log = logging.getLogger(__name__)

# Minimum time between log lines of failed logins. Nodes reconnect immediately.
_LOG_MS = 10_000.0


class NodeLogin(PasswordLogin):
    """Login of a node, which is repeated until it succeeds. Failures are logged."""

    __slots__ = ("_clock", "_next_line_ms")

    def __init__(self, settings: LoginSettings, runtime: Runtime) -> None:
        super().__init__(
            settings.mechanism,
            (settings.username, settings.password),
            runtime.executor,
            runtime.rng,
        )
        self._clock = runtime.clock
        # Time (ms, monotonic) from which the next failure is logged.
        self._next_line_ms = 0.0

    def note_failure(self, reason: str) -> None:
        """Log a failed login, unless a failure was logged recently."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_line_ms:
            self._next_line_ms = now_ms + _LOG_MS
            _log.warning("Login at another node failed: %s", reason)


def node_login(settings: LoginSettings, runtime: Runtime) -> ClientLogin:
    """Return the credentials with which a node logs in at a listener of other nodes."""
    return NodeLogin(settings, runtime)
