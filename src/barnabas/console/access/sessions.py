"""Sessions of browsers, the password of a console, and limits for wrong passwords.

A session lives in the memory of the console; a restart ends all of them. The browser gets a random
id in a cookie. Each form has the session's second token, which another site cannot know (CSRF).
"""

from __future__ import annotations

import base64
import hmac
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

from barnabas.console.access.users import PASSWORD_USER, Role, User
from barnabas.console.forms import NO_DRAFT

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.console.forms import Draft
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng

_SESSIONS_MAX = 100
# Users of a proxy whose notices and drafts are kept.
_PROXY_USERS_MAX = 1_000
_LIFETIME_MS = 8 * 3_600_000
_NOTICES_MAX = 5
_TOKEN_BYTES = 24
_PASSWORD_BYTES = 15
# At most this number of wrong passwords in this time, from one address and from all together.
_ATTEMPTS_MAX = 10
_ALL_ATTEMPTS_MAX = 100
_ATTEMPTS_MS = 60_000
_ADDRESSES_MAX = 1_000


class Notice(NamedTuple):
    """The result of a change, which the next page shows once."""

    is_error: bool
    text: str


class Session:
    """One log-in of one browser, or one user of a proxy that proves users."""

    __slots__ = ("csrf", "draft", "ends_ms", "notices", "proved_ms", "user")

    def __init__(self, csrf: str, now_ms: float, user: User) -> None:
        self.user = user
        # The token in every form.
        self.csrf = csrf
        # When the log-in was last proved (ms, monotonic clock).
        self.proved_ms = now_ms
        # End of the session (ms, monotonic clock).
        self.ends_ms = now_ms + _LIFETIME_MS
        self.notices: deque[Notice] = deque(maxlen=_NOTICES_MAX)
        # The newest form that was refused, until a page shows it again.
        self.draft = NO_DRAFT

    @property
    def role(self) -> Role:
        """What the user may do, if the console allows changes at all."""
        return self.user.role

    def without_notices(self) -> Session:
        """Return the session for a response that shows neither notices nor a draft."""
        found = Session(self.csrf, self.proved_ms, self.user)
        found.ends_ms = self.ends_ms
        return found

    def taken(self) -> Session:
        """Return the session for a page of another process; its notices and its draft move."""
        found = self.without_notices()
        found.notices.extend(self.take_notices())
        found.draft = self.take_draft()
        return found

    def take_notices(self) -> list[Notice]:
        """Return the notices, and forget them."""
        found = list(self.notices)
        self.notices.clear()
        return found

    def take_draft(self) -> Draft:
        """Return the newest form that was refused, and forget it."""
        found, self.draft = self.draft, NO_DRAFT
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
        # By id; the session that was used last is the last one.
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        # Sessions of users of a proxy, by source and name; the one that was used last is the last.
        # The proxy proves a user with each request, and the token is made from the name. So a
        # session that others push out is made again, without its notices and its draft.
        self._of_proxy: OrderedDict[tuple[str, str], Session] = OrderedDict()
        self._proxy_key = rng.token(_TOKEN_BYTES)
        self.failures = WrongPasswords(clock)
        # Cookies of all ports of a host are one jar, so consoles need names of their own.
        self.cookie = f"barnabas_console_{rng.token(4).hex()}"

    def announce_password(self) -> None:
        """Make and announce a one-time password, unless the password is fixed."""
        if not self._is_fixed:
            self._password = self.token(_PASSWORD_BYTES)
            self._announce(self._password)

    def log_in(self, password: str, address: str = "") -> str | None:
        """Return the id of a new session; None if the password is wrong.

        A one-time password is used up, and the next one is announced.
        """
        if self.failures.is_blocked(address):
            return None
        given, wanted = password.encode("utf-8", "replace"), self._password.encode()
        if not wanted or not hmac.compare_digest(given, wanted):
            self.failures.add(address)
            return None
        self.announce_password()
        return self.begin(User(PASSWORD_USER, Role.ADMIN, "password"))

    def begin(self, user: User) -> str:
        """Return the id of a new session of a user that is proved."""
        session_id = self.token(_TOKEN_BYTES)
        self._add(session_id, user)
        return session_id

    def _add(self, session_id: str, user: User) -> Session:
        while len(self._sessions) >= _SESSIONS_MAX:
            self._sessions.popitem(last=False)
        session = Session(self.token(_TOKEN_BYTES), self._clock.monotonic_ms(), user)
        self._sessions[session_id] = session
        return session

    def of_proxy(self, user: User) -> Session:
        """Return the session of a user that a proxy proves with each request."""
        known = self._of_proxy
        name = (user.source, user.name)
        session = known.get(name)
        if session is None:
            digest = hmac.digest(self._proxy_key, "\0".join(name).encode(), "sha256")
            csrf = base64.urlsafe_b64encode(digest).decode()
            session = known[name] = Session(csrf, self._clock.monotonic_ms(), user)
            if len(known) > _PROXY_USERS_MAX:
                known.popitem(last=False)
        known.move_to_end(name)
        # The proxy may have given the user another role.
        session.user = user
        return session

    def of_browser(self, session_id: str | None) -> Session | None:
        """Return the session that a cookie names; None if there is none or it has ended."""
        session = None if session_id is None else self._sessions.get(session_id)
        if session is None or session_id is None:
            return None
        if self._clock.monotonic_ms() >= session.ends_ms:
            del self._sessions[session_id]
            return None
        self._sessions.move_to_end(session_id)
        return session

    def log_out(self, session_id: str | None) -> None:
        """End the session of a browser."""
        if self.of_browser(session_id) is not None:
            del self._sessions[session_id or ""]

    def token(self, size: int) -> str:
        """Return a random text of so many bytes."""
        return base64.urlsafe_b64encode(self._rng.token(size)).decode().rstrip("=")


class WrongPasswords:
    """Counts wrong passwords by the address that sent them.

    An address that guesses does not block the log-ins of other addresses, unless many guess.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Times of wrong passwords (ms, monotonic clock), of all addresses and of each.
        self._all: deque[float] = deque(maxlen=_ALL_ATTEMPTS_MAX)
        self._by_address: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, address: str) -> None:
        """Count a wrong password."""
        now_ms = self._clock.monotonic_ms()
        self._all.append(now_ms)
        found = self._by_address.setdefault(address, deque(maxlen=_ATTEMPTS_MAX))
        found.append(now_ms)
        self._by_address.move_to_end(address)
        if len(self._by_address) > _ADDRESSES_MAX:
            self._by_address.popitem(last=False)

    def is_blocked(self, address: str) -> bool:
        """Return whether there were too many, so that no password is accepted now."""
        return self._is_full(self._all) or self._is_full(self._by_address.get(address))

    def _is_full(self, times: deque[float] | None) -> bool:
        if not times or len(times) < (times.maxlen or 0):
            return False
        return self._clock.monotonic_ms() - times[0] < _ATTEMPTS_MS
