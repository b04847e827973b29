"""Exposes metrics of streaming queries to Prometheus: `serve_metrics(spark)`.

The HTTP listener is that of a broker. It runs on an event loop in a thread of its own, so that a
scrape never waits for a query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from barnabas.client.session.lifetime import WithBlock
from barnabas.metrics.metrics_listener import MetricsListener
from barnabas.metrics.registry import MetricsRegistry
from barnabas.runtime.stepper import LoopStepper
from barnabas.spark.query_metrics import QueryMetrics
from barnabas.spark.query_progress import query_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

DEFAULT_PORT = 9309
_CLOSE_TIMEOUT_MS = 10_000.0


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
