"""Log lines of failed authentications: one per connection, and a limited number per time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.runtime.line_limit import LineLimit

if TYPE_CHECKING:
    from barnabas.network.connection import Connection
    from barnabas.runtime.clock import Clock
    from barnabas.server.security.sasl.login import Login

_log = logging.getLogger(__name__)

# Maximum length of a logged user name, which the client chooses.
_NAME_CHARS_MAX = 60


class FailureLog:
    """Counts failed authentications, and logs them at a limited rate."""

    def __init__(self, clock: Clock) -> None:
        # Failed authentications since the start.
        self.failures = 0
        # All listeners share it, and all reasons.
        self._limit = LineLimit(clock, _log, "Authentication failures")

    def note(self, connection: Connection, listener: str, login: Login) -> None:
        """Log a failure. If the limit of the period is reached, only count it."""
        self.failures += 1
        if not self._limit.allows(""):
            return
        name = login.claimed_name
        _log.warning(
            "Authentication failed: client=%s listener=%s mechanism=%s user=%s reason=%s",
            connection.peer,
            listener,
            login.mechanism or "none",
            "unknown" if name is None else repr(name[:_NAME_CHARS_MAX]),
            login.failure,
        )
