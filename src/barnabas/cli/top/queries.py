"""Streaming queries of Spark, read from the metrics of their driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.cli.top.metrics import MetricsError, fetch_metrics
from barnabas.metrics import catalogue as names

if TYPE_CHECKING:
    from barnabas.cli.top.metrics import Labels

__all__ = ["QuerySample", "query_samples", "scrape_queries"]


@dataclass(frozen=True, slots=True)
class QuerySample:
    """A query at the time of the sample; None for values that it does not have."""

    is_running: bool
    failures: int
    # Of the last batch.
    rows_per_second: float | None
    batch_seconds: float | None
    # By topic: records that had not been read at the end of the last batch.
    lag: dict[str, int]
    state_rows: int | None

    def as_json(self) -> dict[str, Any]:
        """Return the sample ready for JSON."""
        return {
            "running": self.is_running,
            "failures": self.failures,
            "rows_per_s": self.rows_per_second,
            "batch_s": self.batch_seconds,
            "lag": self.lag,
            "state_rows": self.state_rows,
        }


def scrape_queries(address: str) -> dict[str, QuerySample] | None:
    """Return the queries of the driver at HOST:PORT by name; None if it does not answer.

    A driver that has ended is no error: a query may run only now and then.
    """
    try:
        return query_samples(fetch_metrics(address))
    except MetricsError:
        return None


def query_samples(found: dict[str, dict[Labels, float]]) -> dict[str, QuerySample]:
    """Return the queries in the metrics of a driver, by name."""

    def read(name: str) -> dict[str, float]:
        values = found.get(name, {})
        return {dict(labels).get("query", ""): value for labels, value in values.items()}

    failures, rates, seconds = map(
        read, (names.FAILURES, names.ROWS_PER_SECOND, names.LAST_BATCH_SECONDS)
    )
    states = read(names.STATE_ROWS)
    lags: dict[str, dict[str, int]] = {}
    for labels, behind in found.get(names.LAG, {}).items():
        tags = dict(labels)
        lag = lags.setdefault(tags["query"], {})
        lag[tags["topic"]] = lag.get(tags["topic"], 0) + int(behind)
    return {
        name: QuerySample(
            is_running=bool(running),
            failures=int(failures.get(name, 0)),
            rows_per_second=rates.get(name),
            batch_seconds=seconds.get(name),
            lag=lags.get(name, {}),
            state_rows=int(states[name]) if name in states else None,
        )
        for name, running in read(names.RUNNING).items()
    }
