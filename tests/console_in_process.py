"""A console in a thread of the test's process, which gets requests without HTTP (ASGI)."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from starlette.routing import Route

from barnabas.console.frame import Announcements
from barnabas.console.serving import make_application
from barnabas.console.settings import ConsoleSettings
from barnabas.console.site import Site
from barnabas.runtime.loop import new_loop

SECONDS = 120
HOST = "127.0.0.1:8080"
FORM = "application/x-www-form-urlencoded"
# A console of these settings never reaches a broker.
NO_BROKER = {
    "request.timeout.ms": "300",
    "default.api.timeout.ms": "300",
    "socket.connection.setup.timeout.ms": "300",
}


@dataclass(slots=True)
class Answer:
    """A response."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def csrf(self) -> str:
        """The token in the first form of the page."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.text)
        assert found is not None, self.text
        return found[1]


class ConsoleInProcess:
    """A running console. `log_in` keeps its cookie for all later requests.

    Args:
        settings: The settings of the console.
        announce: Gets one-time passwords in place of `passwords`.
    """

    def __init__(
        self, settings: ConsoleSettings, announce: Callable[[str], None] | None = None
    ) -> None:
        self._settings = settings
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        # One-time passwords in the order in which the console announced them.
        self.passwords: list[str] = []
        self._announce = announce or self.passwords.append
        self.cookie = ""
        # The page from which forms are sent.
        self.forms_page = "/"

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._begin())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run(self._running.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)

    async def _begin(self) -> None:
        self.site = Site(self._settings, Announcements(self._announce))
        # The console of the only cluster, or of the first one.
        self.console = self.site.consoles[0]
        self._application = make_application(self.site)
        self._running = self.site.running(self._application)
        await self._running.__aenter__()

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(SECONDS)

    @property
    def paths(self) -> list[str]:
        """The paths of all pages that a GET request shows, without those of files."""
        return [
            route.path
            for route in self._application.routes
            if isinstance(route, Route) and "GET" in (route.methods or ()) and "{" not in route.path
        ]

    def sample(self) -> None:
        """Take a sample of rates and lags now."""
        self._run(self.console.history.sample())

    def get(self, path: str, **fields: object) -> Answer:
        """Request a page."""
        return self.request("GET", path, query=urlencode(fields))

    @property
    def token(self) -> str:
        """The token of the session."""
        path, _, query = self.forms_page.partition("?")
        return self.request("GET", path, query=query).csrf

    def post(self, path: str, **fields: object) -> Answer:
        """Send a form, with the headers of a browser."""
        headers = {"content-type": FORM, "origin": f"http://{HOST}"}
        return self.request("POST", path, headers=headers, body=urlencode(fields).encode())

    def change(self, path: str, **fields: object) -> Answer:
        """Send a form with the token of the session, and return the page that follows."""
        done = self.post(path, csrf=self.token, here=self.forms_page, **fields)
        assert done.status == 303, done.text
        target, _, query = done.headers["location"].partition("?")
        return self.request("GET", target, query=query)

    def preview(self, path: str, **fields: object) -> Answer:
        """Send a form with the token of the session, and return the page that asks for a yes."""
        shown = self.post(path, csrf=self.token, here=self.forms_page, **fields)
        assert shown.status == 200, shown.text
        assert 'name="confirmed" value="1"' in shown.text
        return shown

    def log_in(self) -> None:
        """Log in with the newest one-time password."""
        answer = self.post("/login", password=self.passwords[-1], next="/")
        assert answer.status == 303, answer.text
        self.cookie = answer.headers["set-cookie"].split(";")[0]

    def request(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Send a request; `headers` replace those that every request has."""
        scope = self._scope(method, path, query, headers, body)
        answer: Answer = self._run(self._send(scope, body))
        return answer

    def follow(self, path: str, until: bytes, **fields: object) -> Future[Answer]:
        """Begin to read a response that does not end; leave it when its body has a text."""
        scope = self._scope("GET", path, urlencode(fields))
        return asyncio.run_coroutine_threadsafe(self._send(scope, b"", until), self._loop)

    @contextmanager
    def slow_reader(self, path: str, **fields: object) -> Iterator[Future[Answer]]:
        """Begin to read a response, and read no more than its beginning within the block."""
        scope = self._scope("GET", path, urlencode(fields))
        begun, may_go_on = threading.Event(), asyncio.Event()

        async def read() -> None:
            begun.set()
            await may_go_on.wait()

        found = asyncio.run_coroutine_threadsafe(self._send(scope, b"", on_body=read), self._loop)
        try:
            assert begun.wait(SECONDS), "the response did not begin"
            yield found
        finally:
            self._loop.call_soon_threadsafe(may_go_on.set)

    def _scope(
        self,
        method: str,
        path: str,
        query: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> dict[str, Any]:
        own = {"host": HOST, **({"cookie": self.cookie} if self.cookie else {})}
        if body:
            own["content-length"] = str(len(body))
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(k.encode(), v.encode()) for k, v in {**own, **(headers or {})}.items()],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8080),
        }

    async def _send(
        self,
        scope: dict[str, Any],
        body: bytes,
        until: bytes | None = None,
        on_body: Callable[[], Awaitable[object]] | None = None,
    ) -> Answer:
        answer = Answer()
        sent = [{"type": "http.request", "body": body, "more_body": False}]
        leaving = asyncio.Event()

        async def receive() -> Any:
            if sent:
                return sent.pop()
            await leaving.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                answer.body += message.get("body", b"")
                if on_body is not None:
                    await on_body()
                if until is not None and until in answer.body:
                    leaving.set()

        await self._application(scope, receive, send)
        return answer


def table_rows(page: str) -> dict[str, dict[str, str]]:
    """Return the text of the cells of a page's tables, by the row's first cell and the header."""
    rows: dict[str, dict[str, str]] = {}
    for table in re.findall(r"<table[^>]*>.*?</table>", page, re.DOTALL):
        header, *lines = (_cells(each) for each in re.findall(r"<tr.*?</tr>", table, re.DOTALL))
        for line in lines:
            if len(line) == len(header):
                rows[line[0]] = dict(zip(header, line, strict=True))
    return rows


def _cells(row: str) -> list[str]:
    found = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
    return [re.sub(r"<[^>]+>|\s+", " ", each).strip() for each in found]
