"""Exposes metrics of streaming queries to Prometheus: `serve_metrics(spark)`.

The metrics are collected from the events of the queries. Spark reports events in a thread of its
own, and the metrics listener reads in another one. A lock guards all state. A query keeps its
counters over restarts within the process, because Prometheus expects counters to grow. Its gauges
are those of its last batch, also after its end.

The HTTP listener is that of a broker. It runs on an event loop in a thread of its own, so that a
scrape never waits for a query.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.streaming.listener import StreamingQueryListener

from barnabas.client.session.lifetime import WithBlock
from barnabas.metrics import catalogue as names
from barnabas.metrics.metrics_listener import MetricsListener
from barnabas.metrics.registry import MetricFamily, MetricsRegistry, Summary
from barnabas.runtime.stepper import LoopStepper
from barnabas.spark.query_progress import query_progress, unix_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from barnabas.metrics.registry import Tags
    from barnabas.spark.query_progress import QueryProgress

    Samples: TypeAlias = "list[tuple[Tags, float | Summary]]"

# A notebook may start any number of queries without names. The oldest ended ones are dropped.
QUERIES_MAX = 500
# Upper bounds of the histogram of durations, s.
_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 150.0, 300.0, 600.0, 1800.0)
DEFAULT_PORT = 9309
_CLOSE_TIMEOUT_MS = 10_000.0


@dataclass(slots=True)
class _Query:
    """The counters and gauges of one query. Counters start with the process."""

    is_running: bool = False
    starts: int = 0
    failures: int = 0
    rows_read: int = 0
    # None while no batch has reported written rows.
    rows_written: int | None = None
    late_rows: int = 0
    batches: int = 0
    batch_seconds: float = 0.0
    # Number of batches by the index of the first bound that is not below their duration.
    durations: list[int] = field(default_factory=lambda: [0] * len(_BOUNDS_S))
    phase_seconds: dict[str, float] = field(default_factory=dict)
    # Unix time (s) of the last batch or of the last trigger without data. None before the first.
    last_trigger: float | None = None
    # The last batch. None before the first.
    last: QueryProgress | None = None

    def add(self, progress: QueryProgress) -> None:
        """Add a finished batch."""
        self.rows_read += progress.rows_read
        if progress.rows_written is not None:
            self.rows_written = (self.rows_written or 0) + progress.rows_written
        self.late_rows += progress.late_rows
        self.batches += 1
        self.batch_seconds += progress.seconds
        for index, bound in enumerate(_BOUNDS_S):
            if progress.seconds <= bound:
                self.durations[index] += 1
                break
        for phase, seconds in progress.phases.items():
            self.phase_seconds[phase] = self.phase_seconds.get(phase, 0.0) + seconds
        self.last_trigger = unix_seconds(progress.time)
        self.last = progress

    def histogram(self) -> Summary:
        """Return the durations of all batches."""
        buckets: dict[float, int] = {}
        number = 0
        for bound, more in zip(_BOUNDS_S, self.durations, strict=True):
            number += more
            buckets[bound] = number
        return Summary(self.batches, self.batch_seconds, {}, buckets)


class QueryMetrics:
    """The metrics of all queries by name. Any thread may call any method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # In the order of the first event.
        self._queries: dict[str, _Query] = {}

    def on_started(self, query: str) -> None:
        """Count a start."""
        with self._lock:
            found = self._query(query)
            found.starts += 1
            found.is_running = True

    def on_progress(self, query: str, progress: QueryProgress) -> None:
        """Add a finished batch."""
        with self._lock:
            self._query(query).add(progress)

    def on_idle(self, query: str, time: str) -> None:
        """Note a trigger without data, at a time in ISO 8601."""
        with self._lock:
            self._query(query).last_trigger = unix_seconds(time)

    def on_ended(self, query: str, *, failed: bool) -> None:
        """Note the end of a run of the query."""
        with self._lock:
            found = self._query(query)
            found.is_running = False
            found.failures += failed

    def families(self) -> list[MetricFamily]:
        """Return all metrics."""
        with self._lock:
            running = sum(each.is_running for each in self._queries.values())
            return [
                MetricFamily(names.RUNNING_QUERIES, [((), running)]),
                *(
                    MetricFamily(name, self._samples(read))
                    for name, read in (*_VALUES.items(), *_VALUES_OF_LAST_BATCH.items())
                ),
                MetricFamily(names.PHASE_SECONDS, self._phases()),
                MetricFamily(names.LAG, self._lags()),
            ]

    def _query(self, name: str) -> _Query:
        found = self._queries.get(name)
        if found is None:
            if len(self._queries) >= QUERIES_MAX:
                self._drop_oldest_ended()
            found = self._queries[name] = _Query()
        return found

    def _drop_oldest_ended(self) -> None:
        ended = next((name for name, each in self._queries.items() if not each.is_running), None)
        if ended is not None:
            del self._queries[ended]

    def _samples(self, read: Callable[[_Query], float | Summary | None]) -> Samples:
        """Return one value of each query that has it."""
        values = ((name, read(each)) for name, each in self._queries.items())
        return [((("query", name),), value) for name, value in values if value is not None]

    def _phases(self) -> Samples:
        return [
            ((("query", name), ("phase", phase)), seconds)
            for name, each in self._queries.items()
            for phase, seconds in each.phase_seconds.items()
        ]

    def _lags(self) -> Samples:
        return [
            ((("query", name), ("topic", tp.topic), ("partition", str(tp.partition))), behind)
            for name, each in self._queries.items()
            if each.last is not None
            for tp, behind in each.last.lag.items()
        ]


def _of_last(
    read: Callable[[QueryProgress], float | None],
) -> Callable[[_Query], float | None]:
    return lambda query: None if query.last is None else read(query.last)


def _watermark(progress: QueryProgress) -> float | None:
    return None if progress.watermark is None else unix_seconds(progress.watermark)


_VALUES: dict[str, Callable[[_Query], float | Summary | None]] = {
    names.RUNNING: lambda query: int(query.is_running),
    names.STARTS: lambda query: query.starts,
    names.FAILURES: lambda query: query.failures,
    names.ROWS_READ: lambda query: query.rows_read,
    names.ROWS_WRITTEN: lambda query: query.rows_written,
    names.LATE_ROWS: lambda query: query.late_rows,
    names.BATCH_SECONDS: _Query.histogram,
    names.LAST_TRIGGER: lambda query: query.last_trigger,
}
_VALUES_OF_LAST_BATCH: dict[str, Callable[[_Query], float | Summary | None]] = {
    names.ROWS_PER_SECOND: _of_last(lambda batch: batch.rows_per_second),
    names.LAST_BATCH_SECONDS: _of_last(lambda batch: batch.seconds),
    names.WATERMARK: _of_last(_watermark),
    names.STATE_ROWS: _of_last(lambda batch: batch.state_rows),
    names.STATE_BYTES: _of_last(lambda batch: batch.state_bytes),
}


class QueryMetricsServer(WithBlock):
    """Serves the metrics of queries over HTTP until it is closed; also a context.

    Args:
        metrics: the metrics.
        host: the address to listen on.
        port: the port; 0 takes a free one.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(self, metrics: QueryMetrics, host: str, port: int) -> None:
        self._stepper = LoopStepper()
        runtime = self._stepper.runtime
        registry = MetricsRegistry(runtime.clock)
        registry.add_source(metrics.families)
        self._listener = MetricsListener(registry, runtime.timer, _no_problem, _no_problem)
        self._stepper.enter()
        try:
            # HOST:PORT with the real port.
            self.address = self._listener.bind(runtime.sockets, host, port)
        except OSError:
            self._stepper.close()
            raise
        self._stepper.keep_alive()
        self._stepper.leave()

    def close(self) -> None:
        """Stop serving."""
        if self._stepper.enter(wait_ms=_CLOSE_TIMEOUT_MS):
            self._listener.close()
            self._stepper.close()


class QueryMetricsListener(StreamingQueryListener):
    """Gives the events of a session's queries to their metrics.

    A query is named by its `queryName`, and by the id in its checkpoint if it has no name.
    """

    def __init__(self, metrics: QueryMetrics) -> None:
        super().__init__()
        self._metrics = metrics
        # Names of the queries by their ids; of running queries only.
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Count the start."""
        self._name(event.id, event.name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Add the batch."""
        progress = query_progress(event.progress.json)
        self._metrics.on_progress(self._name(progress.query_id, event.progress.name), progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Note the time."""
        self._metrics.on_idle(self._name(event.id), event.timestamp)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Note the end, and whether it was a failure."""
        self._metrics.on_ended(self._name(event.id), failed=event.exception is not None)
        self._names.pop(str(event.id), None)

    def _name(self, query_id: Any, name: str | None = None) -> str:
        """Return the name of a query, which is one that started earlier if it has none yet."""
        found = self._names.get(str(query_id))
        if found is None:
            found = self._names[str(query_id)] = name or str(query_id)
            self._metrics.on_started(found)
        return found


class SessionMetrics(WithBlock):
    """The metrics of a session's queries, served until this is closed; also a context."""

    def __init__(
        self, session: SparkSession, listener: QueryMetricsListener, server: QueryMetricsServer
    ) -> None:
        self._session = session
        self._listener = listener
        self._server = server
        # HOST:PORT with the real port.
        self.address = server.address

    def close(self) -> None:
        """Stop collecting and serving metrics. The queries are not affected."""
        self._session.streams.removeListener(self._listener)
        self._server.close()


def serve_metrics(
    session: SparkSession, host: str = "127.0.0.1", port: int = DEFAULT_PORT
) -> SessionMetrics:
    """Serve metrics of all queries of a session.

    Args:
        session: a session, also one of Spark Connect.
        host: the address to listen on.
        port: the port; 0 takes a free one.

    Returns:
        The running service, with `address` and `close()`.

    Raises:
        OSError: the address cannot be bound.
    """
    metrics = QueryMetrics()
    listener = QueryMetricsListener(metrics)
    server = QueryMetricsServer(metrics, host, port)
    session.streams.addListener(listener)
    return SessionMetrics(session, listener, server)


def _no_problem() -> None:
    """The process of a driver is healthy and ready while it responds."""
