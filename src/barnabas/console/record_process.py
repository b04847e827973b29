"""The process that serves the pages of records, and what the console gives it.

Producers write what they like, so decoding, masking, searching and drawing a record can take long.
The console passes these requests to a child process, and its own event loop stays free. The console
keeps log-ins, changes and the audit log; the child gets each request with the session of its user.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from barnabas.console.console import console_of
from barnabas.console.frame import takes_notices
from barnabas.console.request_checks import STREAMED
from barnabas.runtime.child_application import ChildApplication, ChildDiedError, ChildTask

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from starlette.types import ASGIApp, Receive, Scope, Send

    from barnabas.console.settings import ConsoleSettings

_log = logging.getLogger(__name__)


class RecordPages:
    """Passes requests to the process that serves the pages of records (an ASGI application).

    Args:
        settings: The settings of the console.
        make: Makes the application of the process; a function of a module.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        make: Callable[[ConsoleSettings], AbstractAsyncContextManager[ASGIApp]],
    ) -> None:
        self._child = ChildApplication(ChildTask(make, _for_child(settings)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            HTTPException: The process ended before it had sent the response.
        """
        request = Request(scope)
        console = console_of(request)
        console.audit_revealing(request)
        session = console.session_of(request)
        sent = None
        if session is not None:
            is_page = not request.url.path.endswith(STREAMED) and takes_notices(request)
            sent = session.taken() if is_page else session.without_notices()
        has_started = False

        async def pass_on(message: Any) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._child.respond(scope, sent, receive, pass_on)
        except ChildDiedError:
            _log.error("Process of records died path=%s", request.url.path)
            if has_started:
                raise
            text = (
                "the process that reads records ended, for example because the records of this "
                "page need too much memory: choose fewer or smaller ones, and try again"
            )
            raise HTTPException(503, text) from None

    async def close(self) -> None:
        """End the process."""
        await self._child.close()


def _for_child(settings: ConsoleSettings) -> ConsoleSettings:
    """Return the settings without the files that only the console itself uses."""
    connect = tuple(replace(each, tls=None) for each in settings.connect)
    clusters = tuple(replace(each, history=None, connect=()) for each in settings.clusters)
    return replace(settings, history=None, prometheus=None, connect=connect, clusters=clusters)
