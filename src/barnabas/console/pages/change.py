"""Steps of all changes: check the log-in and the token, act, and redirect to a page.

A change that deletes or moves something first shows what that is; the user confirms it there.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, NamedTuple

from starlette.exceptions import HTTPException
from starlette.routing import Route

from barnabas.client.errors import ClientError
from barnabas.console.access.broker_users import is_still_accepted
from barnabas.console.access.roles import Role
from barnabas.console.access.sessions import Notice, Session
from barnabas.console.console import console_of
from barnabas.console.forms import Fields, FormError, form_fields
from barnabas.console.missing_rights import missing_right

if TYPE_CHECKING:
    from collections.abc import Callable

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
    # The state before and after the change, for the audit log; None if the form says it all.
    before: object = None
    after: object = None


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

    async def handle(request: Request) -> Response:
        return await _Change(path, act, preview, role).handle(request)

    return Route(path, handle, methods=["POST"])


class _Change(NamedTuple):
    """A change that requests may make; see `change` for the fields."""

    path: str
    act: Callable[[Client, Fields], Done]
    preview: Callable[[Client, Fields], Preview | None] | None
    role: Role

    async def handle(self, request: Request) -> Response:
        """Make the change, or ask the user to confirm it."""
        console = console_of(request)
        form = await form_fields(request)
        session = console.session_of(request)
        entry = _AuditEntry(request, session, self.path, form)
        try:
            if not console.settings.allow_changes:
                text = "this console is read-only: start it with --allow-changes"
                raise HTTPException(403, text)
            session = check_token(session, form)
            await self._check_rights(console, session)
        except HTTPException as error:
            entry.write("refused", error=error.detail)
            raise
        try:
            preview, done = await console.cluster.call(lambda client: self._run(client, form))
        except (ClientError, FormError, TimeoutError) as error:
            text = str(error) or "no answer in time"
            entry.write("failed", error=text)
            advice = missing_right(error, request)
            session.notices.append(Notice(is_error=True, text=f"{text}. {advice}".strip(". ")))
            return console.redirect(_form_page(form))
        if done is None:
            assert preview is not None, "a change is either made or shown"
            return self._ask(request, preview, form)
        rows = None if preview is None else [preview.columns, *preview.rows]
        entry.write("done", text=done.text, effects=rows, before=done.before, after=done.after)
        session.notices.append(Notice(is_error=False, text=done.text))
        return console.redirect(done.page)

    async def _check_rights(self, console: Console, session: Session) -> None:
        if session.role < self.role:
            raise HTTPException(
                403,
                f"{session.user.name} is {session.role.title}, and this change needs the role "
                f"{self.role.title}: --role {session.user.name}={self.role.title} gives it",
            )
        try:
            is_accepted = await is_still_accepted(console.brokers, session, console.clock)
        except (ClientError, TimeoutError) as error:
            raise HTTPException(503, f"the brokers cannot check the log-in: {error}") from None
        if not is_accepted:
            raise HTTPException(403, "the brokers no longer accept the password: log in again")

    def _run(self, client: Client, form: Fields) -> tuple[Preview | None, Done | None]:
        """Return the effects, if there is a preview, and the result unless the user is asked."""
        preview = None if self.preview is None else self.preview(client, form)
        if preview is not None and not form.has(_CONFIRMED):
            return preview, None
        return preview, self.act(client, form)

    def _ask(self, request: Request, preview: Preview, form: Fields) -> Response:
        return console_of(request).page(
            request,
            "preview.html",
            preview=preview._replace(rows=preview.rows[:_ROWS_MAX]),
            left_out=max(0, len(preview.rows) - _ROWS_MAX),
            action=self.path,
            fields={**form.all_but("csrf", "here"), _CONFIRMED: "1"},
            here=_form_page(form),
        )


class _AuditEntry(NamedTuple):
    """What the audit log says of a change before its result is known."""

    request: Request
    session: Session | None
    path: str
    form: Fields

    def write(self, result: str, **more: object) -> None:
        """Write the entry with its result; nothing for clients that are not logged in."""
        if self.session is None:
            return
        console = console_of(self.request)
        actor = console.actor(self.request, self.session)
        fields = self.form.all_but()
        console.shared.audit.add(actor, console.title, self.path, fields, result, **more)


def _form_page(form: Fields) -> str:
    """Return the page that has the form; the first page if the field is not a path."""
    page = form.text("here")
    is_path = page.startswith("/") and not page.startswith("//") and "\\" not in page
    return page if is_path and page.isprintable() else "/"
