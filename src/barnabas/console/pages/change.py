"""Steps of all changes: check the log-in and the token, act, and redirect to a page.

A change that deletes or moves something first shows what that is; the user confirms it there. The
audit log has each change that a user made, that failed or that was refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

import click
from starlette.exceptions import HTTPException
from starlette.routing import Route

from barnabas.client.errors import ClientError
from barnabas.console.access.audit import BEGUN, AuditError
from barnabas.console.access.broker_users import is_still_accepted
from barnabas.console.access.sessions import Notice, Session
from barnabas.console.access.users import Role
from barnabas.console.connect.rest import ConnectError
from barnabas.console.console import console_of
from barnabas.console.forms import NO_DRAFT, Draft, Fields, FormError, form_fields
from barnabas.console.missing_rights import missing_right
from barnabas.console.tables import matching, tabulate
from barnabas.serializers.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client
    from barnabas.console.cluster_access import ClusterAccess
    from barnabas.console.console import Console
    from barnabas.console.tables import Column, Table

T = TypeVar("T")
R = TypeVar("R")

# The errors that the form's page shows: something refused the change.
_REFUSALS = (
    ClientError, ConnectError, FormError, RegistryError, TimeoutError, click.UsageError
)  # fmt: skip
# The field of a form whose preview the user has seen.
_CONFIRMED = "confirmed"
# Id of the form that a preview sends again to sort its rows, and its field that filters them.
_AGAIN, _FILTER = "again", "preview.q"
# The kinds of columns whose values the audit log has as numbers.
_COUNTS = ("number", "id", "change")
# A broker may learn of a change a moment after the controller's response.
_REPORT_TRIES = 8
_REPORT_PAUSE_S = 0.25
# Fields that no draft keeps.
_NOT_KEPT = ("csrf", "here", "password", _CONFIRMED, _FILTER)


class Done(NamedTuple):
    """A completed change: its description for the user, and the page to show next.

    The page is a path without the prefix of a cluster.
    """

    text: str
    page: str
    # The state before and after the change, for the audit log; None if the form says it all.
    before: object = None
    after: object = None
    # Returns whether the brokers report the change; None if they do with the response.
    is_reported: Callable[[Client], bool] | None = None


class Preview(NamedTuple):
    """The effects of a change, for the user to confirm."""

    question: str
    # The text of the button that confirms.
    button: str
    # Those of the rows, as `columns_of` makes them.
    columns: Sequence[Column[Any]]
    rows: Sequence[tuple[object, ...]]
    # A consequence that the rows do not show.
    warning: str = ""
    # Fields that the confirmation adds to those of the form, so that it does what was shown.
    settled: Sequence[tuple[str, str]] = ()


class Shown(NamedTuple):
    """A page in place of a redirect: a form with its errors, or a secret that is shown once."""

    template: str
    values: dict[str, Any]


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
    form = await form_fields(request)
    console = console_of(request)
    return form, _checked_session(console, console.session_of(request), form)


def _checked_session(console: Console, session: Session | None, form: Fields) -> Session:
    if not console.settings.allow_changes:
        raise HTTPException(403, "this console is read-only: start it with --allow-changes")
    return check_token(session, form)


def change(
    path: str,
    act: Callable[[T, Fields], Done | Shown],
    preview: Callable[[T, Fields], Preview | Shown | None] | None = None,
    *,
    role: Role = Role.OPERATOR,
    of: Callable[[Console, Client], T] | None = None,
    needs_brokers: bool = True,
) -> Route:
    """Return the route of a change.

    Args:
        path: The path that the form is sent to.
        act: Makes the change; it runs in a thread. Its errors are shown on the form's page.
        preview: Returns what the change will do; it runs in a thread. It must be given for changes
            that delete or move something. None instead of a preview: act without a question.
        role: The smallest role that may make the change.
        of: Returns what `act` and `preview` change; None for the cluster of the client.
        needs_brokers: Whether the change fails at once while no broker of the cluster responds.
    """
    made = _Change(path, act, preview, role, of, needs_brokers)
    return Route(path, made.handle, methods=["POST"])


class _Change(Generic[T]):
    """A change that requests may make; see `change` for the arguments."""

    def __init__(
        self,
        path: str,
        act: Callable[[T, Fields], Done | Shown],
        preview: Callable[[T, Fields], Preview | Shown | None] | None,
        role: Role,
        of: Callable[[Console, Client], T] | None,
        needs_brokers: bool,
    ) -> None:
        self._path = path
        self._act = act
        self._preview = preview
        self._role = role
        self._of = of
        self._needs_brokers = needs_brokers

    async def handle(self, request: Request) -> Response:
        """Make the change, or ask the user to confirm it."""
        console = console_of(request)
        form = await form_fields(request)
        session = console.session_of(request)
        entry = _AuditEntry(request, session, self._path, form)
        try:
            session = _checked_session(console, session, form)
            await self._check_rights(console, session)
        except HTTPException as error:
            entry.write("refused", error=error.detail)
            raise
        try:
            effects, done = await self._make(console, form, entry)
        except AuditError as error:
            raise HTTPException(503, str(error)) from error
        except _REFUSALS as error:
            text = error.message if isinstance(error, click.UsageError) else str(error)
            text = text or "the brokers did not answer in time"
            entry.write("failed", error=text)
            session.draft = _draft(self._path, form, text, getattr(error, "field", ""))
            text = " ".join(filter(None, (text, missing_right(error, request, form))))
            session.notices.append(Notice(is_error=True, text=text))
            return console.redirect(_form_page(form))
        except BaseException as error:
            # A thread may still make the change, for example if the request took too long.
            entry.write("unknown", error=type(error).__name__)
            raise
        if isinstance(done, Preview):
            page = _preview_page(request, self._path, form, done)
            # For the way back to the form, if the user cancels; a page takes the draft.
            session.draft = _draft(self._path, form)
            return page
        session.draft = NO_DRAFT
        if isinstance(done, Shown):
            if effects is not done:
                entry.write("done")
            return console.page(request, done.template, here=_form_page(form), **done.values)
        await wait_until_reported(console.cluster, done)
        rows = _recorded(effects) if isinstance(effects, Preview) else None
        entry.write("done", text=done.text, effects=rows, before=done.before, after=done.after)
        session.notices.append(Notice(is_error=False, text=done.text))
        return console.redirect(done.page)

    async def _check_rights(self, console: Console, session: Session) -> None:
        name, role = session.user.name, self._role.title
        if session.role < self._role:
            raise HTTPException(
                403,
                f"{name} is {session.role.title}, and this change needs the role {role}. "
                f"An operator of the console gives it with --role {name}={role}",
            )
        try:
            is_accepted = await is_still_accepted(console.brokers, session, console.clock)
        except (ClientError, TimeoutError) as error:
            raise HTTPException(503, f"the brokers cannot check the log-in: {error}") from None
        if not is_accepted:
            raise HTTPException(403, "the brokers no longer accept the password: log in again")

    async def _make(
        self, console: Console, form: Fields, entry: _AuditEntry
    ) -> tuple[Preview | Shown | None, Done | Preview | Shown]:
        """Return the effects, if there is a preview, and the result or what the user is asked.

        Raises:
            AuditError: The change is not made, because it cannot be recorded.
        """
        preview = self._preview
        if preview is not None and not form.has(_CONFIRMED):
            shown = await self._run(console, lambda target: preview(target, form))
            if shown is not None:
                return shown, shown
        entry.begin()

        def act(target: T) -> tuple[Preview | Shown | None, Done | Shown]:
            effects = None
            if preview is not None and form.has(_CONFIRMED):
                # For the audit log: the user has seen them already, perhaps some time ago.
                with contextlib.suppress(*_REFUSALS):
                    effects = preview(target, form)
            return effects, self._act(target, form)

        return await self._run(console, act)

    async def _run(self, console: Console, work: Callable[[T], R]) -> R:
        """Run a function with what the change uses, in a thread."""

        def run(client: Client) -> R:
            return work(cast("T", client) if self._of is None else self._of(console, client))

        return await console.cluster.call(run, needs_brokers=self._needs_brokers)


async def wait_until_reported(cluster: ClusterAccess, done: Done) -> None:
    """Wait until the brokers report a change, so that the next page shows it; at most seconds.

    The change is complete in any case, so an error of a broker ends the wait.
    """
    if done.is_reported is None:
        return
    with contextlib.suppress(*_REFUSALS):
        for _ in range(_REPORT_TRIES):
            if await cluster.call(done.is_reported):
                return
            await asyncio.sleep(_REPORT_PAUSE_S)


class _AuditEntry(NamedTuple):
    """What the audit log says of a change before its result is known."""

    request: Request
    session: Session | None
    path: str
    form: Fields

    def begin(self) -> None:
        """Write that the change is about to be made.

        Raises:
            AuditError: It cannot be written.
        """
        self._add(BEGUN)

    def write(self, result: str, **more: object) -> None:
        """Write the entry with its result; nothing for clients that are not logged in.

        The audit log writes it later if it cannot be written now.
        """
        with contextlib.suppress(AuditError):
            self._add(result, **more)

    def _add(self, result: str, **more: object) -> None:
        if self.session is None:
            return
        console = console_of(self.request)
        actor = console.actor(self.request, self.session)
        fields = self.form.all_but()
        console.shared.audit.add(actor, console.title, self.path, fields, result, **more)


def _recorded(shown: Preview) -> list[list[object]]:
    """Return the headers and the rows of a preview for the audit log."""
    return [
        [each.label for each in shown.columns],
        *([_recorded_cell(column, row) for column in shown.columns] for row in shown.rows),
    ]


def _recorded_cell(column: Column[Any], row: tuple[object, ...]) -> object:
    """Return a count as a number, and other values as the page shows them."""
    value = None if column.value is None else column.value(row)
    return value if column.kind in _COUNTS and value is not None else column.shown(row)


def _preview_table(request: Request, shown: Preview, query: str) -> Table[tuple[object, ...]]:
    """Return the rows of a preview that match a filter, as a table whose form is sent again."""

    def text(row: tuple[object, ...]) -> str:
        return " ".join(each.shown(row) for each in shown.columns)

    table = tabulate(request, shown.columns, matching(shown.rows, text, query))
    return replace(table, form=_AGAIN, query=query, total_unfiltered=len(shown.rows))


def _preview_page(request: Request, path: str, form: Fields, shown: Preview) -> Response:
    # Browsers end lines with CRLF, and a template prints a CR as an escape.
    fields = [
        (name, value.replace("\r\n", "\n")) for name, value in form.all_but("csrf", "here", _FILTER)
    ]
    return console_of(request).page(
        request,
        "preview.html",
        preview=shown,
        table=_preview_table(request, shown, form.stripped(_FILTER)),
        filter_field=_FILTER,
        action=path,
        fields=fields,
        confirmed_fields=[*fields, *shown.settled, (_CONFIRMED, "1")],
        here=_form_page(form),
    )


def _draft(path: str, form: Fields, problem: str = "", field: str = "") -> Draft:
    return Draft(path, Fields(form.all_but(*_NOT_KEPT)), problem, field)


def _form_page(form: Fields) -> str:
    """Return the page that has the form; the first page if the field is not a path."""
    page = form.text("here")
    is_path = page.startswith("/") and not page.startswith("//") and "\\" not in page
    return page if is_path and page.isprintable() else "/"
