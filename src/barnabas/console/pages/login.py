"""The log-in: by the password of the console, or by name and password of a user of the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from barnabas.client.errors import ClientError
from barnabas.console.access.audit import Actor, AuditError
from barnabas.console.access.broker_users import log_in_at_brokers
from barnabas.console.access.users import PASSWORD_USER
from barnabas.console.console import Console
from barnabas.console.forms import form_fields, query_fields
from barnabas.console.frame import frame_of
from barnabas.console.pages.change import check_token

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.console.frame import Frame


def _page(request: Request, target: str, problem: str = "", status: int = 200) -> Response:
    frame = frame_of(request)
    login = frame.settings.login
    return frame.page(
        request,
        "login.html",
        status,
        next=target,
        problem=problem,
        has_password=login.has_password,
        # Users of the brokers log in at one cluster.
        has_users=bool(login.broker_users) and isinstance(frame, Console),
        chooses_cluster=bool(login.broker_users) and not isinstance(frame, Console),
        proxy_header=login.user_header,
    )


async def show_login(request: Request) -> Response:
    """Show the form for the password."""
    return _page(request, _local(query_fields(request).text("next")))


async def log_in(request: Request) -> Response:
    """Check the password, and begin a session."""
    frame, form = frame_of(request), await form_fields(request)
    target, user, password = _local(form.text("next")), form.stripped("user"), form.text("password")
    if not frame.settings.has_login:
        return _page(request, target, "there is no log-in", 403)
    sessions = frame.sessions
    address = frame.shared.proxy.address(request)
    if sessions.failures.is_blocked(address):
        return _page(request, target, "too many wrong passwords: wait a minute", 429)
    if user:
        try:
            session_id = await _log_in_user(frame, user, password, address)
        except (ClientError, TimeoutError) as error:
            return _page(request, target, f"the brokers cannot check the log-in: {error}", 502)
    elif frame.settings.login.has_password:
        session_id = sessions.log_in(password, address)
    else:
        return _page(request, target, "fill in the name of the user", 400)
    actor = Actor(user or PASSWORD_USER, "broker" if user else "password", "", address)
    result = "refused" if session_id is None else "done"
    try:
        frame.shared.audit.add(actor, frame.title, "/login", (), result)
    except AuditError as error:
        sessions.log_out(session_id)
        return _page(request, target, str(error), 503)
    if session_id is None:
        named = "the name or the password is wrong" if user else "the password is wrong"
        return _page(request, target, named, 403)
    response = frame.redirect(target)
    response.set_cookie(sessions.cookie, session_id, httponly=True, samesite="strict")
    return response


async def _log_in_user(frame: Frame, name: str, password: str, address: str) -> str | None:
    if not frame.settings.login.broker_users or not isinstance(frame, Console):
        return None
    user = await log_in_at_brokers(frame.brokers, frame.settings.login, name, password)
    if user is None:
        frame.sessions.failures.add(address)
        return None
    return frame.sessions.begin(user)


async def log_out(request: Request) -> Response:
    """End the session."""
    frame = frame_of(request)
    check_token(frame.session_of(request), await form_fields(request))
    frame.sessions.log_out(request.cookies.get(frame.sessions.cookie))
    response = frame.redirect("/")
    response.delete_cookie(frame.sessions.cookie, httponly=True, samesite="strict")
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
