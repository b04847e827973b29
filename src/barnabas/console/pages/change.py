"""Steps of all changes: check the log-in and the token, act, and redirect to a page.

A change that deletes or moves something first shows what that is; the user confirms it there.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, NamedTuple

import click
from starlette.exceptions import HTTPException
from starlette.routing import Route

from barnabas.client.errors import ClientError
from barnabas.console.access.roles import Role
from barnabas.console.console import console_of
from barnabas.console.forms import NO_DRAFT, Draft, Fields, FormError, form_fields
from barnabas.console.request_checks import Notice, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client
    from barnabas.console.console import Console

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
    # Fields that the confirmation adds to those of the form, so that it does what was shown.
    settled: Sequence[tuple[str, str]] = ()


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


async def checked_form(request: Request) -> tuple[Fields, Session]:
    """Return the form of a request that only users who may change something send.

    Raises:
        HTTPException: The console is read-only, or the form has no valid token (403).
    """
    console = console_of(request)
    if not console.settings.allow_changes:
        raise HTTPException(403, "this console is read-only: start it with --allow-changes")
    form = await form_fields(request)
    return form, check_token(console.session_of(request), form)


class Steps(NamedTuple):
    """What a change does before and after its confirmation."""

    act: Callable[[Client, Fields], Done]
    preview: Callable[[Client, Fields], Preview | None] | None = None

    def run(self, client: Client, form: Fields) -> Done | Preview:
        """Return the preview, or make the change if there is none or the user has confirmed."""
        shown = None
        if self.preview is not None and not form.has(_CONFIRMED):
            shown = self.preview(client, form)
        return shown or self.act(client, form)


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
    steps = Steps(act, preview)
    return change_with(path, lambda _console: steps, role=role)


def change_with(
    path: str, steps_of: Callable[[Console], Steps], *, role: Role = Role.OPERATOR
) -> Route:
    """Return the route of a change that needs more of the console than a client.

    Args:
        path: The path that the form is sent to.
        steps_of: Returns the steps of the change for a console.
        role: The smallest role that may make the change.
    """

    async def handle(request: Request) -> Response:
        console = console_of(request)
        form, session = await checked_form(request)
        if session.role < role:
            raise HTTPException(403, f"you are {session.role.title}: this needs {role.title}")
        steps = steps_of(console)
        try:
            done = await console.cluster.call(lambda client: steps.run(client, form))
        except (ClientError, FormError, TimeoutError, click.UsageError) as error:
            text = str(error) or "no answer in time"
            session.notices.append(Notice(is_error=True, text=text))
            session.draft = _draft(path, form, text, getattr(error, "field", ""))
            return console.redirect(_form_page(form))
        if isinstance(done, Preview):
            page = _preview_page(request, path, form, done)
            # For the way back to the form, if the user cancels.
            session.draft = _draft(path, form)
            return page
        session.draft = NO_DRAFT
        session.notices.append(Notice(is_error=False, text=done.text))
        return console.redirect(done.page)

    return Route(path, handle, methods=["POST"])


def _preview_page(request: Request, path: str, form: Fields, shown: Preview) -> Response:
    return console_of(request).page(
        request,
        "preview.html",
        preview=shown._replace(rows=shown.rows[:_ROWS_MAX]),
        left_out=max(0, len(shown.rows) - _ROWS_MAX),
        action=path,
        fields=[*form.all_but("csrf", "here"), *shown.settled, (_CONFIRMED, "1")],
        here=_form_page(form),
    )


# Fields that no draft keeps.
_SECRET = ("csrf", "here", "password", _CONFIRMED)


def _draft(path: str, form: Fields, problem: str = "", field: str = "") -> Draft:
    return Draft(path, Fields(form.all_but(*_SECRET)), problem, field)


def _form_page(form: Fields) -> str:
    """Return the page that has the form; the first page if the field is not a path."""
    page = form.text("here")
    is_path = page.startswith("/") and not page.startswith("//") and "\\" not in page
    return page if is_path and page.isprintable() else "/"
