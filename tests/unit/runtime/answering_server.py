"""A server with as much of S3 as a test needs: it keeps objects, and answers as it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from barnabas.runtime.object_store import ObjectStore, StoreTimeouts, open_object_store
from server_in_thread import ServerInThread

KEYS = {"access_key_id": "FIRST", "secret_access_key": "s3cr3t-value", "region": "eu-west-1"}


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class Request(NamedTuple):
    """A request that the server has received."""

    method: str
    path: str
    query: str
    # By lower-case names.
    headers: dict[str, str]
    body: bytes

    @property
    def key_id(self) -> str:
        """The access key that has signed the request."""
        return self.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]


def failure(status: int, code: str, more: str = "", message: str = "it failed") -> Answer:
    """Return an answer of S3 with a code of an error."""
    text = f"<Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>"
    return Answer(status, text.encode(), (("Content-Type", "application/xml"),))


class AnsweringServer:
    """A bucket. `answer` may give another answer than the bucket would."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[Request] = []
        self.answer: Callable[[Request], Answer | None] = lambda _: None
        self.url = ""

    def options(self) -> dict[str, str]:
        """Return the options of a store that reach this server."""
        return {**KEYS, "endpoint": self.url, "allow_http": "true"}

    def store(self, credentials: str = "", retry_ms: int = 0, **options: str) -> ObjectStore:
        """Return a store at this server."""
        given = self.options() | options
        return open_object_store("s3://bucket", given, credentials, StoreTimeouts(10_000, retry_ms))

    def reply(self, request: Request) -> Answer:
        """Return the answer to a request."""
        self.requests.append(request)
        told = self.answer(request)
        if told is not None:
            return told
        if request.method == "PUT":
            self.objects[request.path] = request.body
            return Answer(200, b"", (("ETag", '"1"'),))
        if request.method == "DELETE":
            self.objects.pop(request.path, None)
            return Answer(204)
        content = self.objects.get(request.path)
        if content is None:
            return failure(404, "NoSuchKey")
        return _part(content, request.headers.get("range", ""))


def _part(content: bytes, wanted: str) -> Answer:
    headers = (("ETag", '"1"'), ("Last-Modified", "Tue, 01 Dec 2026 02:00:00 GMT"))
    if not wanted:
        return Answer(200, content, headers)
    start, last = (int(each) for each in wanted.removeprefix("bytes=").split("-"))
    if start >= len(content):
        return failure(416, "InvalidRange")
    part = content[start : last + 1]
    place = f"bytes {start}-{start + len(part) - 1}/{len(content)}"
    return Answer(206, part, (*headers, ("Content-Range", place)))


@contextmanager
def answering_server() -> Iterator[AnsweringServer]:
    """Run a server in threads of this process, at a free port of the loopback address."""
    bucket = AnsweringServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            path = unquote(url.path)
            answer = bucket.reply(Request(self.command, path, url.query, headers, body))
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_any

        def log_message(self, *_: object) -> None:
            """Write nothing to the output of the tests."""

    with ServerInThread(Handler) as server:
        bucket.url = server.url
        yield bucket
