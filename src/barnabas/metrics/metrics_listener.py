"""HTTP listener (`metrics.listener`): /metrics for Prometheus, /healthz and /readyz for probes.

It listens before the broker is ready, so that /readyz can report why the broker is not ready. The
driver of Spark's streaming queries uses the same listener.

A broker with thousands of partitions has a hundred thousand values. A response is built and sent in
pieces, one in a turn of the loop, and only while the client takes them. A large response or a slow
client therefore neither delays the loop nor fills the memory. The connection reads nothing while it
sends a response, so pipelined requests wait in the kernel.

Metrics have the names of the usual JMX exporter rules for Kafka: group, type and name in lower
case. `PerSec` becomes `_total`, and percentiles have the label `quantile`. The h11 library reads
requests, and the prometheus-client library writes metrics.
"""

from __future__ import annotations

import logging
from itertools import chain, islice
from math import inf
from typing import TYPE_CHECKING, Protocol

import h11
import msgspec
from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import Metric

from barnabas.metrics.catalogue import CATALOGUE, QUERY_CATALOGUE
from barnabas.metrics.registry import MetricKind, Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from barnabas.metrics.catalogue import MetricRow
    from barnabas.metrics.registry import MetricFamily, MetricsRegistry, Tags
    from barnabas.runtime.clock import Cancellable, Timer
    from barnabas.runtime.sockets import Listening, Sockets, Stream


_log = logging.getLogger(__name__)

# Maximum size of the request line and headers. A larger request is rejected.
HEAD_BYTES_MAX = 16 * 1024
# Time limit for a request and its response, which starts again after each response.
DEADLINE_MS = 60_000.0
RECEIVE_BYTES = 16 * 1024

_TEXT = "text/plain; charset=utf-8"
# The text format of Prometheus, which `generate_latest` writes in all versions of the library.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class HttpResponse(msgspec.Struct, frozen=True):
    """An HTTP response. The pieces of its body are created one at a time."""

    status: int
    body: Iterator[bytes]
    content_type: str = _TEXT


class ConnectionListener(Protocol):
    """Methods of the listener that its connections call."""

    def on_progress(self, connection: HttpConnection) -> None:
        """Handle the arrival of a request, or of a part of the response at the client."""
        ...

    def on_ended(self, connection: HttpConnection) -> None:
        """Handle the end of the connection."""
        ...


class HttpConnection:
    """A stream handler that serves the requests of one HTTP connection in order."""

    def __init__(
        self,
        timer: Timer,
        buffer: bytearray,
        respond: Callable[[str, str], HttpResponse],
        listener: ConnectionListener,
    ) -> None:
        """Begin to serve requests of one connection.

        Args:
            timer: runs the time limit and the turns.
            buffer: receive buffer, shared by all connections of the loop.
            respond: returns the response to a method and target.
            listener: the listener of this connection.
        """
        self._timer = timer
        self._buffer = buffer
        self._respond = respond
        self._listener = listener
        # The stream. None before the connection is open, and after it is closed.
        self._stream: Stream | None = None
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        # Remaining pieces of the current response. None while there is no request.
        self._body: Iterator[bytes] | None = None
        # Whether the stream takes more output.
        self._writable = True
        # Whether the turn of the next piece is scheduled.
        self._pumping = False
        # Whether the stream is being read. False while a response is sent.
        self._reading = True
        # Timer of the time limit. None before the connection is open.
        self._deadline: Cancellable | None = None

    @property
    def is_responding(self) -> bool:
        """Whether the response to a request has not been sent completely."""
        return self._body is not None

    def abort(self) -> None:
        """Close the connection immediately."""
        if self._stream is not None:
            self._stream.abort()

    def on_connected(self, stream: Stream) -> None:
        """Store the stream and start the time limit."""
        self._stream = stream
        self._deadline = self._timer.call_later(DEADLINE_MS, self.abort)

    def get_buffer(self, size_hint: int) -> bytearray:
        """Return the shared receive buffer."""
        return self._buffer

    def on_received(self, count: int) -> None:
        """Parse the received bytes and serve complete requests."""
        try:
            self._http.receive_data(bytes(self._buffer[:count]))
            self._handle_events()
        except h11.RemoteProtocolError as error:
            self._refuse(error)

    def on_writable_changed(self, writable: bool) -> None:
        """Send more of the response when the stream becomes writable."""
        self._writable = writable
        if writable:
            self._listener.on_progress(self)
            self._pump()

    def on_closed(self, error: Exception | None) -> None:
        """Cancel the time limit and inform the listener."""
        self._body = None
        self._stream = None
        if self._deadline is not None:
            self._deadline.cancel()
        self._listener.on_ended(self)

    def _handle_events(self) -> None:
        while self._stream is not None:
            event = self._http.next_event()
            if event in (h11.NEED_DATA, h11.PAUSED):
                return
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.ConnectionClosed):
                self._stream.close()
                return

    def _begin(self, request: h11.Request) -> None:
        response = self._respond(request.method.decode(), request.target.decode("latin-1"))
        self._send(
            h11.Response(
                status_code=response.status, headers=[("Content-Type", response.content_type)]
            )
        )
        self._body = response.body
        self._listener.on_progress(self)
        self._pause_reading()
        self._later()

    def _pump(self) -> None:
        """Send the next piece of the response if the stream is writable."""
        self._pumping = False
        if self._body is None or not self._writable or self._stream is None:
            return
        try:
            piece = next(self._body, None)
        except Exception:  # noqa: BLE001 - only this request fails
            # Without the final chunk the client sees that the response is incomplete.
            _log.exception("HTTP response failed: client=%s", self._stream.peer)
            self._stream.abort()
            return
        if piece is None:
            self._end()
        else:
            self._send(h11.Data(data=piece))
            self._later()

    def _later(self) -> None:
        if not self._pumping:
            self._pumping = True
            self._timer.call_soon(self._pump)

    def _end(self) -> None:
        self._body = None
        self._send(h11.EndOfMessage())
        if self._stream is None:
            return
        if self._http.our_state is h11.MUST_CLOSE or self._http.their_state is h11.MUST_CLOSE:
            self._stream.close()
            return
        if self._http.their_state is not h11.DONE:
            # The request has a body that was not received completely. Do not wait for the rest.
            self._stream.close()
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._timer.call_later(DEADLINE_MS, self.abort)
        self._http.start_next_cycle()
        self._handle_events()
        self._maybe_resume_reading()

    def _pause_reading(self) -> None:
        if self._reading and self._stream is not None:
            self._reading = False
            self._stream.pause_reading()

    def _maybe_resume_reading(self) -> None:
        if not self._reading and self._body is None and self._stream is not None:
            self._reading = True
            self._stream.resume_reading()

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """Respond to invalid HTTP with an error, unless a response has begun, and close."""
        if self._stream is None:
            return
        if self._http.our_state is h11.IDLE or self._http.our_state is h11.SEND_RESPONSE:
            self._send(
                h11.Response(
                    status_code=error.error_status_hint,
                    headers=[("Content-Type", _TEXT), ("Connection", "close")],
                )
            )
            self._send(h11.Data(data=b"this is no HTTP request that is served here\n"))
            self._send(h11.EndOfMessage())
        self._body = None
        self._stream.close()

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data and self._stream is not None:
            self._stream.write([data])


# Number of values per piece. A piece takes about one millisecond. A histogram has many lines.
PIECE_SAMPLES = 100
_PIECE_HISTOGRAMS = 5
_ROWS = CATALOGUE | QUERY_CATALOGUE
_TOTAL = "_total"
_PER_SECOND = "persec"


class _SingleMetricCollector:
    """Collector of one metric, as the library expects it."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def exposition_name(name: str, kind: MetricKind) -> str:
    """Return the Prometheus name of a metric. The name of a counter lacks its `_total`."""
    plain = name.replace(":", "_").replace(".", "_").replace("-", "_").lower()
    if kind is MetricKind.COUNTER:
        plain = plain.removesuffix(_PER_SECOND).removesuffix(_TOTAL)
    return plain


def pieces(families: Iterable[MetricFamily]) -> Iterator[bytes]:
    """Yield the text of all families. Each step is short."""
    for family in families:
        row = _ROWS[family.name]
        name = exposition_name(family.name, row.kind)
        samples = iter(family.samples)
        size = _PIECE_HISTOGRAMS if row.kind is MetricKind.HISTOGRAM else PIECE_SAMPLES
        piece = list(islice(samples, size))
        yield _text(name, row, piece)
        while len(piece) == size:
            piece = list(islice(samples, size))
            # A client chooses the values of some labels, which may contain "\r" but not "\n".
            lines = _text(name, row, piece).split(b"\n")
            # Only the first piece of a family has its header lines.
            yield b"\n".join(line for line in lines if not line.startswith(b"#"))


def _bound(value: float) -> str:
    return "+Inf" if value == inf else f"{value:g}"


def _text(name: str, row: MetricRow, piece: list[tuple[Tags, float | Summary]]) -> bytes:
    metric = Metric(name, row.text, row.kind.value)
    for tags, value in piece:
        _add(metric, name, tags, value)
    return generate_latest(_SingleMetricCollector(metric))


def _add(metric: Metric, name: str, tags: Tags, value: float | Summary) -> None:
    labels = {label.replace("-", "_"): text for label, text in tags}
    if isinstance(value, Summary):
        if metric.type == MetricKind.HISTOGRAM.value:
            for bound, number in (*value.buckets.items(), (inf, value.number)):
                metric.add_sample(f"{name}_bucket", {**labels, "le": _bound(bound)}, number)
        for fraction, at in value.quantiles.items():
            metric.add_sample(name, {**labels, "quantile": str(fraction)}, at)
        metric.add_sample(f"{name}_count", labels, value.number)
        metric.add_sample(f"{name}_sum", labels, value.total)
    elif metric.type == MetricKind.COUNTER.value:
        metric.add_sample(name + _TOTAL, labels, value)
    else:
        metric.add_sample(name, labels, value)


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
        """Create the metrics listener.

        Args:
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
