"""An HTTP proxy before a bucket server, with faults (`buckets.faults`).

It runs on threads of the test. A request and its response are whole in memory: objects of tests
are small. The bucket server checks no signatures, so the proxy can check the access key: tests
change it to rotate credentials.
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import unquote

from buckets.faults import STATUSES, Fault, Faults, Kind, flipped

HOST = "127.0.0.1"
# Of connections to the bucket server.
_TIMEOUT_S = 120.0
# A connection that is held or idle ends, at the latest, after this time.
_HOLD_S = 600.0
# Headers that belong to one connection, and those that the proxy writes itself.
_OWN_HEADERS = ("connection", "keep-alive", "transfer-encoding", "content-length")
_ACCESS_KEY = re.compile(r"Credential=([^/,]+)/")
# Bytes of a chunk's size, or of a trailer.
_LINE_MAX = 1_000


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class FaultyProxy:
    """The proxy, at an address that stays the same over `stop` and `start`.

    Args:
        server: HOST:PORT of the bucket server.
    """

    def __init__(self, server: str) -> None:
        self.server = server
        self.faults = Faults()
        # The access keys that are accepted; empty: all.
        self.access_keys: frozenset[str] = frozenset()
        # Method and path of the latest requests, for messages.
        self.requests: deque[str] = deque(maxlen=1_000)
        self._port = 0
        self._listener: _Listener | None = None
        self.start()

    @property
    def address(self) -> str:
        """The URL of the proxy."""
        return f"http://{HOST}:{self._port}"

    def start(self) -> None:
        """Accept connections."""
        if self._listener is not None:
            return
        self._listener = _Listener((HOST, self._port), self)
        self._port = self._listener.server_address[1]
        threading.Thread(
            target=self._listener.serve_forever, args=(0.05,), name="proxy", daemon=True
        ).start()

    def stop(self) -> None:
        """Refuse connections, and end those that are open."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown()
            listener.server_close()
            listener.end_connections()

    def close(self) -> None:
        """Stop, and release what is held."""
        self.faults.heal()
        self.stop()


class _Listener(ThreadingHTTPServer):
    """Accepts connections, and has a thread for each."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], proxy: FaultyProxy) -> None:
        self.proxy = proxy
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request_thread(self, request: socket.socket, client_address: object) -> None:
        """Serve a connection."""
        with self._lock:
            self._open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.discard(request)

    def end_connections(self) -> None:
        """End all open connections."""
        with self._lock:
            for each in self._open:
                _end(each)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore connections that end in the middle."""


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    timeout = _HOLD_S
    server: _Listener

    def setup(self) -> None:
        super().setup()
        self._upstream: http.client.HTTPConnection | None = None

    def finish(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        super().finish()

    def handle_any(self) -> None:
        """Pass a request on, unless a fault takes it."""
        proxy = self.server.proxy
        path = unquote(self.path)
        proxy.requests.append(f"{self.command} {path}")
        body = self._read_body()
        keys = proxy.access_keys
        if keys and keys.isdisjoint(_ACCESS_KEY.findall(self.headers.get("Authorization", ""))):
            self._write(_error("InvalidAccessKeyId", path))
            return
        fault = proxy.faults.of(self.command, path)
        if fault is None:
            self._write(self._pass_on(body))
        else:
            self._suffer(fault, path, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    def _suffer(self, fault: Fault, path: str, body: bytes) -> None:
        match fault.kind:
            case Kind.DELAY:
                fault.healed.wait(fault.seconds)
                self._write(self._pass_on(body))
            case Kind.ANSWER:
                self._write(_error(fault.code, path))
            case Kind.LIE:
                self._write(_lie(self.command, path))
            case Kind.FLIP_UPLOAD:
                self._write(self._pass_on(flipped(body) if body else body))
            case Kind.FLIP:
                found = self._pass_on(body)
                self._write(found._replace(body=flipped(found.body)) if found.body else found)
            case Kind.TRUNCATE:
                found = self._pass_on(body)
                self._write(found._replace(body=found.body[: fault.size]), len(found.body))
                self._cut()
            case Kind.CUT:
                self._cut()
            case Kind.CUT_AFTER:
                self._pass_on(body)
                self._cut()
            case Kind.HOLD:
                fault.healed.wait(_HOLD_S)
                self._cut()
            case Kind.HOLD_AFTER:
                found = self._pass_on(body)
                fault.healed.wait(_HOLD_S)
                self._write(found)

    def _pass_on(self, body: bytes) -> Answer:
        """Send the request to the bucket server, and return its response."""
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in _OWN_HEADERS
        }
        headers["Content-Length"] = str(len(body))
        # The server may have ended an idle connection.
        for _ in range(2):
            if self._upstream is None:
                self._upstream = http.client.HTTPConnection(
                    self.server.proxy.server, timeout=_TIMEOUT_S
                )
            try:
                self._upstream.request(self.command, self.path, body, headers)
                response = self._upstream.getresponse()
                return Answer(response.status, response.getheaders(), response.read())
            except (OSError, http.client.HTTPException):
                self._upstream.close()
                self._upstream = None
        return _error("ServiceUnavailable", self.path)

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline(_LINE_MAX).partition(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline(_LINE_MAX)
            while self.rfile.readline(_LINE_MAX) not in (b"\r\n", b""):
                pass
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def _write(self, answer: Answer, announced: int | None = None) -> None:
        """Write a response, with another length in its header if one is given."""
        self.send_response_only(answer.status)
        length = str(len(answer.body) if announced is None else announced)
        for name, value in answer.headers:
            if self.command == "HEAD" and name.lower() == "content-length":
                length = value
            elif name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _cut(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        _end(self.connection)

    def log_message(self, *_: object) -> None:
        """Write no log."""


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def _error(code: str, path: str) -> Answer:
    """Return an error as S3 answers it."""
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>'
        f"<Message>a fault of the test: {code}</Message><Resource>{_escaped(path)}</Resource>"
        "<RequestId>1</RequestId></Error>"
    )
    return Answer(STATUSES[code], _headers(), text.encode())


def _lie(method: str, path: str) -> Answer:
    """Return the response of a server that has stored or deleted."""
    if method == "DELETE":
        return Answer(204, _headers(), b"")
    if method == "PUT":
        return Answer(200, [("ETag", '"0123456789abcdef0123456789abcdef"')], b"")
    if "delete" in path.partition("?")[2]:
        return Answer(200, _headers(), b"<DeleteResult></DeleteResult>")
    if "uploads" in path.partition("?")[2]:
        text = "<InitiateMultipartUploadResult><UploadId>1</UploadId>"
        return Answer(200, _headers(), f"{text}</InitiateMultipartUploadResult>".encode())
    text = '<CompleteMultipartUploadResult><ETag>"0"</ETag></CompleteMultipartUploadResult>'
    return Answer(200, _headers(), text.encode())


def _headers() -> list[tuple[str, str]]:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    return [("Content-Type", "application/xml"), ("Date", date)]


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
