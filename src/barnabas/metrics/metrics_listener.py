"""HTTP listener (`metrics.listener`): /metrics for Prometheus, /healthz and /readyz for probes.

It listens before the broker is ready, so that /readyz can report why the broker is not ready. The
driver of Spark's streaming queries uses the same listener.

A broker with thousands of partitions has a hundred thousand values. They are written in pieces, one
in a turn of the loop.

Metrics have the names of the usual JMX exporter rules for Kafka: group, type and name in lower
case. `PerSec` becomes `_total`, and percentiles have the label `quantile`. The prometheus-client
library writes metrics.
"""

from __future__ import annotations

from itertools import chain, islice
from math import inf
from typing import TYPE_CHECKING

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import Metric

from barnabas.metrics.catalogue import CATALOGUE, NODE_CATALOGUE, QUERY_CATALOGUE
from barnabas.metrics.http_listener import HttpListener, HttpResponse, text_response
from barnabas.metrics.registry import MetricKind, Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from barnabas.metrics.metric_row import MetricRow
    from barnabas.metrics.registry import MetricFamily, MetricsRegistry, Tags
    from barnabas.runtime.clock import Timer
    from barnabas.runtime.sockets import Sockets


# The text format of Prometheus, which `generate_latest` writes in all versions of the library.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METRICS_PATH, HEALTH_PATH, READY_PATH = "/metrics", "/healthz", "/readyz"


def refuse_request(method: str, target: str) -> HttpResponse | None:
    """Return the response to a request that is not served; None if it is served."""
    path = target.partition("?")[0]
    paths = (METRICS_PATH, HEALTH_PATH, READY_PATH)
    if path not in paths:
        return text_response(404, f"{path} does not exist; the paths are {', '.join(paths)}")
    if method not in ("GET", "HEAD"):
        return text_response(405, f"{path} does not support {method}; use GET")
    return None


# Number of values per piece. A piece takes about one millisecond. A histogram has many lines.
PIECE_SAMPLES = 100
_PIECE_HISTOGRAMS = 5
_ROWS = CATALOGUE | NODE_CATALOGUE | QUERY_CATALOGUE
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
        self._why_not_healthy = why_not_healthy
        self._why_not_ready = why_not_ready
        self._collector = ProcessCollector(registry=None)
        self._listener = HttpListener(timer, self._respond)

    def bind(self, sockets: Sockets, host: str, port: int) -> str:
        """Listen, and return HOST:PORT with the real port.

        Raises:
            OSError: the address cannot be bound.
        """
        return self._listener.bind(sockets, host, port)

    def close(self) -> None:
        """Stop listening and close all connections."""
        self._listener.close()

    def _respond(self, method: str, target: str, answer: Callable[[HttpResponse], None]) -> None:
        refusal = refuse_request(method, target)
        answer(self._response(target.partition("?")[0]) if refusal is None else refusal)

    def _response(self, path: str) -> HttpResponse:
        if path == METRICS_PATH:
            body = chain(pieces(self._registry.families()), self._process())
            return HttpResponse(200, body, CONTENT_TYPE)
        check = self._why_not_healthy if path == HEALTH_PATH else self._why_not_ready
        problem = check()
        return text_response(200, "ok") if problem is None else text_response(503, problem)

    def _process(self) -> Iterator[bytes]:
        """Yield CPU time, memory and open files under Prometheus' own names."""
        yield generate_latest(self._collector)
