"""Log-in: passwords, sessions and their tokens.

A session lives in the memory of the console; a restart ends all of them. The browser gets a random
id in a cookie. Each form has the session's second token, which another site cannot know (CSRF).
"""

from __future__ import annotations

import base64
import hmac
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng

__all__ = ["Notice", "Session", "Sessions"]

_SESSIONS_MAX = 100
_LIFETIME_MS = 8 * 3_600_000
_NOTICES_MAX = 5
_TOKEN_BYTES = 24
_PASSWORD_BYTES = 15
# At most this number of wrong passwords in this time.
_ATTEMPTS_MAX = 10
_ATTEMPTS_MS = 60_000


class Notice(NamedTuple):
    """The result of a change, which the next page shows once."""

    is_error: bool
    text: str


class Session:
    """One log-in of one browser."""

    __slots__ = ("csrf", "ends_ms", "notices")

    def __init__(self, csrf: str, ends_ms: float) -> None:
        # The token in every form.
        self.csrf = csrf
        # End of the session (ms, monotonic clock).
        self.ends_ms = ends_ms
        self.notices: deque[Notice] = deque(maxlen=_NOTICES_MAX)

    def take_notices(self) -> list[Notice]:
        """Return the notices, and forget them."""
        found = list(self.notices)
        self.notices.clear()
        return found


class Sessions:
    """All sessions of a console, and its password.

    Args:
        clock: Ends sessions.
        rng: Makes passwords and tokens.
        password: The fixed password; None for one-time passwords.
        announce: Called with each new one-time password.
    """

    def __init__(
        self, clock: Clock, rng: Rng, password: str | None, announce: Callable[[str], None]
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._is_fixed = password is not None
        self._password = "" if password is None else password
        self._announce = announce
        self._sessions: dict[str, Session] = {}
        # Times of wrong passwords (ms, monotonic clock).
        self._failures: deque[float] = deque(maxlen=_ATTEMPTS_MAX)
        # Cookies of all ports of a host are one jar, so consoles need names of their own.
        self.cookie = f"barnabas_console_{rng.token(4).hex()}"

    def announce_password(self) -> None:
        """Make and announce a one-time password, unless the password is fixed."""
        if not self._is_fixed:
            self._password = self._token(_PASSWORD_BYTES)
            self._announce(self._password)

    @property
    def is_blocked(self) -> bool:
        """Whether there were too many wrong passwords, so that no password is accepted now."""
        oldest = self._failures[0] if len(self._failures) == _ATTEMPTS_MAX else None
        return oldest is not None and self._clock.monotonic_ms() - oldest < _ATTEMPTS_MS

    def log_in(self, password: str) -> str | None:
        """Return the id of a new session; None if the password is wrong.

        A one-time password is used up, and the next one is announced.
        """
        if self.is_blocked:
            return None
        given, wanted = password.encode("utf-8", "replace"), self._password.encode()
        if not wanted or not hmac.compare_digest(given, wanted):
            self._failures.append(self._clock.monotonic_ms())
            return None
        self.announce_password()
        while len(self._sessions) >= _SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        session_id = self._token(_TOKEN_BYTES)
        ends_ms = self._clock.monotonic_ms() + _LIFETIME_MS
        self._sessions[session_id] = Session(self._token(_TOKEN_BYTES), ends_ms)
        return session_id

    def find(self, session_id: str | None) -> Session | None:
        """Return the session with this id; None if there is none or it has ended."""
        session = None if session_id is None else self._sessions.get(session_id)
        if session is None or session_id is None:
            return None
        if self._clock.monotonic_ms() >= session.ends_ms:
            del self._sessions[session_id]
            return None
        return session

    def log_out(self, session_id: str | None) -> None:
        """End a session."""
        self._sessions.pop(session_id or "", None)

    def _token(self, size: int) -> str:
        return base64.urlsafe_b64encode(self._rng.token(size)).decode().rstrip("=")
