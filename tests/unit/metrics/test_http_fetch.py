"""One HTTP GET to another process."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import pytest

from barnabas.metrics.http_fetch import FetchResult, HttpFetch
from barnabas.metrics.http_listener import HttpListener, HttpResponse, text_response
from barnabas.sim.world import SimWorld

if TYPE_CHECKING:
    from collections.abc import Callable

HOST, PORT, TIMEOUT_MS, BYTES_MAX = "server", 8080, 3_000.0, 1_000


class Pieces(list[bytes]):
    """The pieces of a body."""


class Fetched:
    """A fetch of a path from a server, until its end."""

    def __init__(self, path: str, *, is_listening: bool = True) -> None:
        world = SimWorld(1)
        if is_listening:
            server = world.host(HOST).runtime
            HttpListener(server.timer, respond).bind(server.sockets, HOST, PORT)
        self.pieces = Pieces()
        results: list[FetchResult] = []
        client = world.host("client").runtime
        self.fetch = HttpFetch(
            client.timer, path, TIMEOUT_MS, BYTES_MAX, self.pieces.append, results.append
        )
        self.fetch.start(client.sockets, HOST, PORT)
        assert not results
        assert world.run_until(lambda: bool(results))
        world.run_for(2 * TIMEOUT_MS)
        (self.result,) = results


def respond(_method: str, target: str, answer: Callable[[HttpResponse], None]) -> None:
    """Answer by the path."""
    if target == "/large":
        answer(HttpResponse(200, (b"x" * 600 for _ in range(10))))
    elif target == "/broken":
        answer(HttpResponse(200, (bytes([1 // left]) for left in (1, 0))))
    elif target != "/silent":
        answer(text_response(200 if target == "/here" else 404, f"this is {target}"))


def test_the_body_and_the_status_of_a_response_are_passed_on() -> None:
    found = Fetched("/here")
    assert (b"".join(found.pieces), found.result.is_ok) == (b"this is /here\n", True)
    absent = Fetched("/elsewhere")
    assert b"".join(absent.pieces) == b"this is /elsewhere\n"
    assert (absent.result, absent.result.is_ok) == (FetchResult(404), False)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/silent", "no answer in time"),
        ("/large", "a response of more than 1000 bytes"),
        ("/broken", "the connection was closed"),
    ],
)
def test_an_incomplete_response_is_a_problem(path: str, problem: str) -> None:
    result = Fetched(path).result
    assert (result.status, result.is_ok) == (0, False)
    assert result.problem == problem


def test_a_server_that_cannot_be_reached_is_a_problem() -> None:
    result = Fetched("/here", is_listening=False).result
    assert result.problem
    assert not result.is_ok


def test_a_fetch_that_has_ended_does_not_keep_the_data_of_its_caller() -> None:
    found = Fetched("/here")
    data = weakref.ref(found.pieces)
    del found.pieces
    assert found.fetch is not None
    assert data() is None
