"""Steps of all changes: check the log-in and the token, act, and redirect to a page.

A change that deletes or moves something first shows what that is; the user confirms it there.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, NamedTuple

from starlette.exceptions import HTTPException
from starlette.routing import Route

from barnabas.client.errors import ClientError
from barnabas.console.access.roles import Role
from barnabas.console.console import console_of
from barnabas.console.forms import Fields, FormError, form_fields
from barnabas.console.request_checks import Notice, Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client

# The field of a form whose preview the user has seen.
_CONFIRMED = "confirmed"
_ROWS_MAX = 200


class Done(NamedTuple):
    """A completed change: its description for the user, and the page to show next.

    The page is a path without the prefix of a cluster.
    """

    text: str
    page: str


class Preview(NamedTuple):
    """The effects of a change, for the user to confirm."""

    question: str
    # The text of the button that confirms.
    button: str
    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]
    # A consequence that the rows do not show.
    warning: str = ""


def check_token(session: Session | None, form: Fields) -> Session:
    """Return the session if the form has its token.

    Raises:
        HTTPException: There is no session, or the form has another token (403).
    """
    if session is None:
        raise HTTPException(403, "log in first")
    given = form.text("csrf").encode("utf-8", "replace")
    if not hmac.compare_digest(given, session.csrf.encode()):
        raise HTTPException(403, "the form is too old or not from this console: load it again")
    return session


def change(
    path: str,
    act: Callable[[Client, Fields], Done],
    preview: Callable[[Client, Fields], Preview | None] | None = None,
    *,
    role: Role = Role.OPERATOR,
) -> Route:
    """Return the route of a change.

    Args:
        path: The path that the form is sent to.
        act: Makes the change; it runs in a thread. Its errors are shown on the form's page.
        preview: Returns what the change will do; it runs in a thread. It must be given for changes
            that delete or move something. None instead of a preview: act without a question.
        role: The smallest role that may make the change.
    """

    def run(client: Client, form: Fields) -> Done | Preview:
        shown = None
        if preview is not None and not form.has(_CONFIRMED):
            shown = preview(client, form)
        return shown or act(client, form)

    async def handle(request: Request) -> Response:
        console = console_of(request)
        if not console.settings.allow_changes:
            raise HTTPException(403, "this console is read-only: start it with --allow-changes")
        form = await form_fields(request)
        session = check_token(console.session_of(request), form)
        if session.role < role:
            raise HTTPException(403, f"you are {session.role.title}: this needs {role.title}")
        try:
            done = await console.cluster.call(lambda client: run(client, form))
        except (ClientError, FormError, TimeoutError) as error:
            session.notices.append(Notice(is_error=True, text=str(error) or "no answer in time"))
            return console.redirect(_form_page(form))
        if isinstance(done, Preview):
            fields = {**form.all_but("csrf", "here"), _CONFIRMED: "1"}
            return console.page(
                request,
                "preview.html",
                preview=done._replace(rows=done.rows[:_ROWS_MAX]),
                left_out=max(0, len(done.rows) - _ROWS_MAX),
                action=path,
                fields=fields,
                here=_form_page(form),
            )
        session.notices.append(Notice(is_error=False, text=done.text))
        return console.redirect(done.page)

    return Route(path, handle, methods=["POST"])


def _form_page(form: Fields) -> str:
    """Return the page that has the form; the first page if the field is not a path."""
    page = form.text("here")
    is_path = page.startswith("/") and not page.startswith("//") and "\\" not in page
    return page if is_path and page.isprintable() else "/"
