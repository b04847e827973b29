"""HTTP listener (`metrics.listener`): /metrics for Prometheus, /healthz and /readyz for probes.

It listens before the broker is ready, so that /readyz can report why the broker is not ready. The
driver of Spark's streaming queries uses the same listener.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

from barnabas.metrics.exposition import pieces
from barnabas.metrics.http_connection import RECEIVE_BYTES, HttpConnection, HttpResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.metrics.registry import MetricsRegistry
    from barnabas.runtime.clock import Timer
    from barnabas.runtime.sockets import Listening, Sockets

# Maximum number of connections, enough for all scrapers. A new connection replaces an idle one.
CONNECTIONS_MAX = 16

_PATHS = "/metrics, /healthz, /readyz"


class MetricsListener:
    """Binds an address and responds to HTTP requests."""

    def __init__(
        self,
        registry: MetricsRegistry,
        timer: Timer,
        why_not_healthy: Callable[[], str | None],
        why_not_ready: Callable[[], str | None],
    ) -> None:
        """Args:
        registry: source of the metrics.
        timer: runs timeouts and turns of the connections.
        why_not_healthy: returns the problem of the process, or None.
        why_not_ready: returns the event that the process waits for, or None if it is ready.
        """
        self._registry = registry
        self._timer = timer
        self._why_not_healthy = why_not_healthy
        self._why_not_ready = why_not_ready
        self._buffer = bytearray(RECEIVE_BYTES)
        self._collector = ProcessCollector(registry=None)
        # The bound socket. None before `bind` and after `close`.
        self._listening: Listening | None = None
        # Open connections. The first has made no progress for the longest time.
        self._connections: dict[HttpConnection, None] = {}

    def bind(self, sockets: Sockets, host: str, port: int) -> str:
        """Listen, and return HOST:PORT with the real port.

        Raises:
            OSError: the address cannot be bound.
        """
        self._listening = sockets.listen(host, port, self._accept)
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{self._listening.port}"

    def close(self) -> None:
        """Stop listening and close all connections."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for connection in list(self._connections):
            connection.abort()

    def _accept(self) -> HttpConnection:
        if len(self._connections) >= CONNECTIONS_MAX:
            self._close_least_active()
        connection = HttpConnection(self._timer, self._buffer, self._respond, self)
        self._connections[connection] = None
        return connection

    def on_progress(self, connection: HttpConnection) -> None:
        """Move a connection that has made progress to the end of the order."""
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None

    def on_ended(self, connection: HttpConnection) -> None:
        """Remove a connection that has closed."""
        self._connections.pop(connection, None)

    def _close_least_active(self) -> None:
        """Close the least active connection, so that idle connections cannot block a scraper."""
        connections = list(self._connections)
        idle = next((each for each in connections if not each.is_responding), connections[0])
        del self._connections[idle]
        idle.abort()

    def _respond(self, method: str, target: str) -> HttpResponse:
        path = target.partition("?")[0]
        if path not in ("/metrics", "/healthz", "/readyz"):
            return _text_response(404, f"{path} does not exist; the paths are {_PATHS}")
        if method not in ("GET", "HEAD"):
            return _text_response(405, f"{path} does not support {method}; use GET")
        if path == "/metrics":
            body = chain(pieces(self._registry.families()), self._process())
            return HttpResponse(200, body, CONTENT_TYPE)
        check = self._why_not_healthy if path == "/healthz" else self._why_not_ready
        problem = check()
        return _text_response(200, "ok") if problem is None else _text_response(503, problem)

    def _process(self) -> Iterator[bytes]:
        """Yield CPU time, memory and open files under Prometheus' own names."""
        yield generate_latest(self._collector)


def _text_response(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, iter([text.encode("utf-8", "replace") + b"\n"]))
