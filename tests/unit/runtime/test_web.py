"""Requests to hostile servers end: in bytes, in time, and at the address that was given."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Self

import pytest

from barnabas.runtime.web import RESPONSE_BYTES_MAX, WebRequest, exchange, fetch

OK = b"HTTP/1.1 200 OK\r\n"
LIMIT_S = 0.5
# Between two bytes; a tenth of the limit, so that no single read is late.
PAUSE_S = 0.05


class RawServer:
    """Answers each connection with pieces of bytes, until the client leaves."""

    def __init__(self, answer: Callable[[], Iterable[bytes]], *, is_slow: bool = False) -> None:
        self._answer = answer
        self._pause_s = PAUSE_S if is_slow else 0.0
        self._has_ended = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.requests: list[bytes] = []
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection, contextlib.suppress(OSError):
                    self.requests.append(connection.recv(65_536))
                    for piece in self._answer():
                        connection.sendall(piece)
                        if self._has_ended.wait(self._pause_s):
                            return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def test_a_response_arrives_in_any_pieces() -> None:
    text = OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with RawServer(lambda: (text[n : n + 7] for n in range(0, len(text), 7))) as server:
        assert fetch(WebRequest(server.url)) == b"abcde"


def endless_body() -> Iterator[bytes]:
    yield OK + b"\r\n"
    yield from itertools.repeat(b"x" * 65_536)


def huge_body() -> Iterator[bytes]:
    yield OK + b"Content-Length: 1000000000\r\n\r\n"
    yield from itertools.repeat(b"x" * 65_536)


def endless_error() -> Iterator[bytes]:
    yield b"HTTP/1.1 500 No\r\n\r\n"
    yield from itertools.repeat(b"x" * 65_536)


@pytest.mark.parametrize("answer", [endless_body, huge_body, endless_error])
def test_a_response_without_an_end_is_an_error(answer: Callable[[], Iterable[bytes]]) -> None:
    with (
        RawServer(answer) as server,
        pytest.raises(OSError, match=f"more than {RESPONSE_BYTES_MAX} bytes"),
    ):
        exchange(WebRequest(server.url))


SLOW = {
    "status": lambda: itertools.repeat(b"H"),
    "headers": lambda: itertools.chain([OK, b"X: "], itertools.repeat(b"x")),
    "continue": lambda: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": lambda: itertools.chain([OK + b"\r\n"], itertools.repeat(b"x")),
    "chunks": lambda: itertools.chain(
        [OK + b"Transfer-Encoding: chunked\r\n\r\n"], itertools.repeat(b"1\r\nx\r\n")
    ),
    "nothing": lambda: itertools.repeat(b""),
}


@pytest.mark.parametrize("answer", SLOW.values(), ids=SLOW.keys())
def test_a_response_that_never_ends_is_late_although_each_byte_is_in_time(
    answer: Callable[[], Iterable[bytes]],
) -> None:
    with (
        RawServer(answer, is_slow=True) as server,
        pytest.raises(OSError, match=f"did not respond within {LIMIT_S} s"),
    ):
        exchange(WebRequest(server.url, timeout_s=LIMIT_S))


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed_so_that_credentials_stay(status: int) -> None:
    with RawServer(lambda: [OK + b"Content-Length: 2\r\n\r\n{}"]) as other:
        redirect = f"HTTP/1.1 {status} Go\r\nLocation: {other.url}/\r\nContent-Length: 0\r\n\r\n"
        with RawServer(lambda: [redirect.encode()]) as server:
            request = WebRequest(server.url, {"Authorization": "Basic secret"})
            assert exchange(request).status == status
        assert other.requests == []


def test_other_addresses_than_http_are_refused() -> None:
    for url in ("file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"):
        with pytest.raises(OSError, match="not an HTTP or HTTPS address"):
            exchange(WebRequest(url))
