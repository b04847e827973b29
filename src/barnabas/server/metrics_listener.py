"""`metrics.listener`: /metrics for Prometheus, /healthz and /readyz for who watches the process.

It listens before the broker is ready, since /readyz has something to say then.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

from barnabas.server.exposition import pieces
from barnabas.server.http_connection import RECEIVE_BYTES, HttpAnswer, HttpConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.metrics.registry import MetricsRegistry
    from barnabas.runtime.sockets import Listening, Sockets
    from barnabas.runtime.timer import Timer

# More at once than any number of scrapers needs; a further one takes the place of an idle one.
CONNECTIONS_MAX = 16

_PATHS = "/metrics, /healthz, /readyz"


class MetricsListener:
    """Binds one address and answers."""

    def __init__(
        self,
        registry: MetricsRegistry,
        timer: Timer,
        why_not_healthy: Callable[[], str | None],
        why_not_ready: Callable[[], str | None],
    ) -> None:
        """Args:
        why_not_healthy: what is wrong with the process; None if nothing is.
        why_not_ready: what the broker still waits for; None if clients are served.
        """
        self._registry = registry
        self._timer = timer
        self._why_not_healthy = why_not_healthy
        self._why_not_ready = why_not_ready
        self._buffer = bytearray(RECEIVE_BYTES)
        self._collector = ProcessCollector(registry=None)
        self._listening: Listening | None = None
        # The one that has made no progress for the longest time comes first.
        self._connections: dict[HttpConnection, None] = {}

    def bind(self, sockets: Sockets, host: str, port: int) -> str:
        """Listen; returns HOST:PORT with the real port.

        Raises:
            OSError: the address cannot be bound.
        """
        self._listening = sockets.listen(host, port, self._accept)
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{self._listening.port}"

    def close(self) -> None:
        """Close it and its connections."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for connection in list(self._connections):
            connection.abort()

    def _accept(self) -> HttpConnection:
        if len(self._connections) >= CONNECTIONS_MAX:
            self._close_least_active()
        connection = HttpConnection(self._timer, self._buffer, self._answer, self)
        self._connections[connection] = None
        return connection

    def on_progress(self, connection: HttpConnection) -> None:
        """A request has come, or its peer has taken a part of the answer."""
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None

    def on_ended(self, connection: HttpConnection) -> None:
        """The connection is closed."""
        self._connections.pop(connection, None)

    def _close_least_active(self) -> None:
        """Make room: silent connections must not keep a scraper out."""
        connections = list(self._connections)
        idle = next((each for each in connections if not each.is_answering), connections[0])
        del self._connections[idle]
        idle.abort()

    def _answer(self, method: str, target: str) -> HttpAnswer:
        path = target.partition("?")[0]
        if path not in ("/metrics", "/healthz", "/readyz"):
            return _words(404, f"there is nothing at {path}; served are {_PATHS}")
        if method not in ("GET", "HEAD"):
            return _words(405, f"{method} is not for {path}; GET is")
        if path == "/metrics":
            body = chain(pieces(self._registry.families()), self._process())
            return HttpAnswer(200, body, CONTENT_TYPE)
        check = self._why_not_healthy if path == "/healthz" else self._why_not_ready
        problem = check()
        return _words(200, "ok") if problem is None else _words(503, problem)

    def _process(self) -> Iterator[bytes]:
        """Processor time, memory and open files under Prometheus' own names."""
        yield generate_latest(self._collector)


def _words(status: int, text: str) -> HttpAnswer:
    return HttpAnswer(status, iter([text.encode("utf-8", "replace") + b"\n"]))
