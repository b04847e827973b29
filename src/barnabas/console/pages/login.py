"""Log in and log out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse
from starlette.routing import Route

from barnabas.console.changes.change import check_token
from barnabas.console.console import console_of
from barnabas.console.web.forms import form_fields, query_fields

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["ROUTES"]


async def show_login(request: Request) -> Response:
    """Show the form for the password."""
    console = console_of(request)
    target = query_fields(request).text("next")
    return console.page(request, "login.html", next=_local(target), problem="")


async def log_in(request: Request) -> Response:
    """Check the password, and begin a session."""
    console, form = console_of(request), await form_fields(request)
    target = _local(form.text("next"))
    sessions = console.sessions
    if not console.settings.has_login:
        return console.page(request, "login.html", 403, next=target, problem="there is no log-in")
    if sessions.is_blocked:
        text = "too many wrong passwords: wait a minute"
        return console.page(request, "login.html", 429, next=target, problem=text)
    session_id = sessions.log_in(form.text("password"))
    if session_id is None:
        text = "the password is wrong"
        return console.page(request, "login.html", 403, next=target, problem=text)
    response = RedirectResponse(target, 303)
    response.set_cookie(sessions.cookie, session_id, httponly=True, samesite="strict")
    return response


async def log_out(request: Request) -> Response:
    """End the session."""
    console = console_of(request)
    check_token(console.session_of(request), await form_fields(request))
    console.sessions.log_out(request.cookies.get(console.sessions.cookie))
    response = RedirectResponse("/", 303)
    response.delete_cookie(console.sessions.cookie, httponly=True, samesite="strict")
    return response


def _local(target: str) -> str:
    """Return a path of this console; "/" for anything that could lead elsewhere."""
    is_local = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_local and target.isprintable() and "\\" not in target else "/"


ROUTES = [
    Route("/login", show_login),
    Route("/login", log_in, methods=["POST"]),
    Route("/logout", log_out, methods=["POST"]),
]
