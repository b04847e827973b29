"""Checks of each request before its page is called, log-ins, and headers of each response.

- Host: only known names. A site whose name was pointed at this machine (DNS rebinding) is refused.
- Origin: a form of another site is refused, before its CSRF token is checked. So are pages that
  another site loads as images, scripts or frames: searches and examinations are costly.
- Size of the body, and time until the response begins.
- The header of a trusted proxy that names the user: it is refused from other addresses.
- A log-in, if the console can be reached from other machines, or can tell its users apart.
- The number of costly requests in a minute.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from barnabas.console.access.rate_limits import is_costly
from barnabas.console.access.users import acting_user
from barnabas.console.forms import FORM_TYPE, MULTIPART_TYPE

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from barnabas.console.access.sessions import Session
    from barnabas.console.frame import Frame
    from barnabas.console.site import Site

BODY_BYTES_MAX = 1024 * 1024
_TARGET_CHARACTERS_MAX = 8 * 1024
# Time limit of a request (s). The requests to the cluster have shorter limits.
_REQUEST_S = 40.0
# Ends of paths of files and streams: their responses have no time limit, and show no notices.
STREAMED = ("/messages/tail", "/messages/download", "/message/raw")
# Paths that are shown without a log-in.
_OPEN = ("/login", "/static/")
_TOO_MANY = 429
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

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site
        settings = site.settings
        self._login_to_read = settings.login_to_read
        self._acts_as_user = settings.login.acts_as_user
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
        request = Request(scope)
        refusal = self._refusal(request) or self._refusal_of_user(request)
        if refusal is not None:
            await refusal(scope, receive, response.send)
            return
        try:
            is_streamed = scope["path"].endswith(STREAMED)
            async with asyncio.timeout(None if is_streamed else _REQUEST_S):
                await self._app(scope, receive, response.send)
        except TimeoutError:
            if response.has_started:
                raise
            late = PlainTextResponse("the request took too long\n", 504)
            await late(scope, receive, response.send)

    def _refusal(self, request: Request) -> Response | None:
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
        if self._site.shared.proxy.is_forged(request):
            text = "only a trusted proxy may name the user: --trusted-proxy adds its address\n"
            return PlainTextResponse(text, 403)
        return None

    def _refusal_of_user(self, request: Request) -> Response | None:
        frame = self._site.frame_of(request.url.path)
        path = frame.path(request)
        session = frame.session_of(request)
        if self._login_to_read and session is None and not path.startswith(_OPEN):
            target = path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"{frame.prefix}/login?next={quote(target, safe='')}", 303)
        if session is not None and self._acts_as_user:
            acting_user.set(session.user.account)
        if is_costly(path, request.url.query):
            return self._refusal_of_costly(request, frame, session)
        return None

    def _refusal_of_costly(
        self, request: Request, frame: Frame, session: Session | None
    ) -> Response | None:
        """Count a costly request of a session, or of an address without one."""
        shared = frame.shared
        client = shared.proxy.address(request) if session is None else session.csrf
        wait_s = shared.limit.take(client)
        if not wait_s:
            return None
        text = f"too many costly requests from this browser or address: wait {wait_s} s"
        response = frame.page(
            request, "problem.html", _TOO_MANY, title="Too many requests", text=text, advice=""
        )
        response.headers["retry-after"] = str(wait_s)
        return response


def host_name(header: str) -> str:
    """Return the name in a Host header, without port and brackets; "" if it is malformed."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def _is_foreign(request: Request, host: str) -> bool:
    """Return whether the headers name another site, or a content type other than a form."""
    kind = request.headers.get("content-type", "").split(";")[0].strip()
    if kind not in (FORM_TYPE, MULTIPART_TYPE):
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
