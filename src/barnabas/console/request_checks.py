"""Checks of each request before its page is called, log-ins, and headers of each response.

- Host: only known names. A site whose name was pointed at this machine (DNS rebinding) is refused.
- Origin: a form of another site is refused, before its CSRF token is checked. So are pages that
  another site loads as images, scripts or frames: searches and examinations are costly.
- Size of the body, and time until the response begins.
- A log-in, if the console can be reached from other machines.

A session lives in the memory of the console; a restart ends all of them. The browser gets a random
id in a cookie. Each form has the session's second token, which another site cannot know (CSRF).
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections import deque
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse

from barnabas.console.access.roles import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from barnabas.console.settings import ConsoleSettings
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng

BODY_BYTES_MAX = 1024 * 1024
FORM_TYPE = "application/x-www-form-urlencoded"
_TARGET_CHARACTERS_MAX = 8 * 1024
# Time limit of a request (s). The requests to the cluster have shorter limits.
_REQUEST_S = 40.0
# Ends of paths without a time limit.
_ENDLESS = ("/messages/tail",)
# Paths that are shown without a log-in.
_OPEN = ("/login", "/static/")
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
_HEADERS = (
    (
        b"content-security-policy",
        (
            b"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
            b"img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        ),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # `no-referrer` would make browsers send "Origin: null" with our own forms.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class RequestChecks:
    """An ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings, sessions: Sessions) -> None:
        self._app = app
        self._sessions = sessions
        self._login_to_read = settings.login_to_read
        names = (*_LOOPBACK_NAMES, settings.host, *settings.allowed_hosts)
        self._hosts = {name.strip("[]").lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        response = _Response(send)
        refusal = self._refusal(Request(scope))
        if refusal is not None:
            await refusal(scope, receive, response.send)
            return
        try:
            is_endless = scope["path"].endswith(_ENDLESS)
            async with asyncio.timeout(None if is_endless else _REQUEST_S):
                await self._app(scope, receive, response.send)
        except TimeoutError:
            if response.has_started:
                raise
            late = PlainTextResponse("the request took too long\n", 504)
            await late(scope, receive, response.send)

    def _refusal(self, request: Request) -> PlainTextResponse | RedirectResponse | None:
        host = request.headers.get("host", "")
        if host_name(host) not in self._hosts:
            text = (
                "This console does not answer to the name in the Host header. "
                "`barnabas console --allowed-host NAME` adds a name.\n"
            )
            return PlainTextResponse(text, 421)
        if len(request.url.path) + len(request.url.query) > _TARGET_CHARACTERS_MAX:
            return PlainTextResponse("the address is too long\n", 414)
        if request.method not in ("GET", "HEAD") and _is_foreign(request, host):
            return PlainTextResponse("the form is not from this console\n", 403)
        if _is_part_of_foreign_page(request):
            return PlainTextResponse("another site may only link to this console\n", 403)
        if "transfer-encoding" in request.headers or _body_bytes(request) > BODY_BYTES_MAX:
            return PlainTextResponse(f"the limit is {BODY_BYTES_MAX} bytes\n", 413)
        if self._login_to_read and not request.url.path.startswith(_OPEN):
            return self._login_page(request)
        return None

    def _login_page(self, request: Request) -> RedirectResponse | None:
        if self._sessions.find(request.cookies.get(self._sessions.cookie)) is not None:
            return None
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?next={quote(target, safe='')}", 303)


def host_name(header: str) -> str:
    """Return the name in a Host header, without port and brackets; "" if it is malformed."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def _is_foreign(request: Request, host: str) -> bool:
    """Return whether the headers name another site, or a content type other than a form."""
    if request.headers.get("content-type", "").split(";")[0].strip() != FORM_TYPE:
        return True
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != host.lower()


def _is_part_of_foreign_page(request: Request) -> bool:
    """Return whether a page of another site loads this one within itself."""
    if request.headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return False
    mode, target = request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest")
    return mode != "navigate" or target != "document"


def _body_bytes(request: Request) -> int:
    """Return the announced size of the body; the HTTP parser holds a client to it."""
    length = request.headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() else BODY_BYTES_MAX + 1


class _Response:
    """Adds the headers of all responses."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            headers = [*message.get("headers", ()), *_HEADERS]
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": headers}
        await self._send(message)


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

    __slots__ = ("csrf", "ends_ms", "notices", "role")

    def __init__(self, csrf: str, ends_ms: float, role: Role) -> None:
        # What the user may do, if the console allows changes at all.
        self.role = role
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
        self._sessions[session_id] = Session(self._token(_TOKEN_BYTES), ends_ms, Role.ADMIN)
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
