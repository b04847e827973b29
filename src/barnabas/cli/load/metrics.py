"""Metrics in Prometheus text: those of brokers, and of Spark's streaming queries."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, TypeAlias

from barnabas.metrics import catalogue as names
from barnabas.server.listeners.client_traffic import ClientKey, Traffic
from barnabas.server.quotas.sanitized_user import sanitized_user

_TIMEOUT_S = 5.0
_LINE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_TOPICS = "kafka_server_brokertopicmetrics_"
_PURGATORY = "kafka_server_delayedoperationpurgatory_numdelayedoperations"
_CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"
_REQUESTS = "kafka_network_requestmetrics_requests_total"
_PRINCIPALS = "barnabas_principal_connections"
_THROTTLE_TIMES = tuple(
    f"kafka_server_{quota}_throttle_time"
    for quota in ("produce", "fetch", "request", "controllermutation")
)
_REQUEST_TIMES = "barnabas_request_seconds_bucket"
_CLIENTS = "barnabas_client_"
_ANONYMOUS = "User:ANONYMOUS"
# Metrics of the supervisor of a node, and the label that it adds to those of its processes.
_SUPERVISOR = "barnabas_node_"
_PROCESS = "broker"

Labels: TypeAlias = tuple[tuple[str, str], ...]


class MetricsError(Exception):
    """A metrics listener cannot be read; the message gives the reason and a remedy."""


@dataclass(frozen=True, slots=True)
class PrincipalMetrics:
    """The open connections of a principal, and the throttle times of its quotas."""

    connections: int
    listeners: frozenset[str]
    # The largest average throttle time (ms) of the last minute; None if no quota throttled it.
    throttle_ms: float | None


@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """The metrics of one broker. Counters start with the broker; None: the metric is missing."""

    # By topic.
    messages_in: dict[str, float]
    bytes_in: dict[str, float]
    bytes_out: dict[str, float]
    # Number of delayed operations by kind.
    purgatories: dict[str, int]
    # Number of requests by API.
    requests: dict[str, float]
    connections: int | None
    cpu_seconds: float | None
    resident_bytes: int | None
    open_files: int | None
    # By principal, TYPE:NAME; empty if all clients are anonymous.
    principals: dict[str, PrincipalMetrics]
    # By API, then by bound (s): number of requests whose time was below it.
    request_times: dict[str, dict[float, float]]
    # The clients with the most traffic.
    clients: dict[ClientKey, Traffic]


def scrape(address: str) -> dict[str, BrokerMetrics]:
    """Return the metrics at HOST:PORT that `top` shows.

    Returns:
        By the address; for a node of several processes by the address and the id of each process.

    Raises:
        MetricsError: The listener does not answer, or its response cannot be read.
    """
    processes = by_process(fetch_metrics(address))
    return {
        f"{address} {process}".rstrip(): broker_metrics(found)
        for process, found in processes.items()
    }


def by_process(
    found: dict[str, dict[Labels, float]],
) -> dict[str, dict[str, dict[Labels, float]]]:
    """Divide the metrics of a node of several processes, and take away the label of the process.

    Returns:
        The metrics by the id of the process; by the empty text if the node is one process.
    """
    processes: dict[str, dict[str, dict[Labels, float]]] = {}
    for name, samples in found.items():
        if name.startswith(_SUPERVISOR):
            continue
        for labels, value in samples.items():
            process = next((text for label, text in labels if label == _PROCESS), "")
            own = tuple(each for each in labels if each[0] != _PROCESS)
            processes.setdefault(process, {}).setdefault(name, {})[own] = value
    return processes or {"": {}}


def fetch_metrics(address: str) -> dict[str, dict[Labels, float]]:
    """Return all metrics at HOST:PORT in the format of `parse_metrics`.

    Raises:
        MetricsError: The listener does not answer, or its response cannot be read.
    """
    url = f"http://{address}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            text = answer.read().decode("utf-8", "replace")
    except (OSError, ValueError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        hint = "start the broker with --metrics HOST:PORT, or set metrics.listener"
        raise MetricsError(f"{url}: {reason}; {hint}") from None
    return parse_metrics(text)


def parse_metrics(text: str) -> dict[str, dict[Labels, float]]:
    """Return values by metric and labels; lines in another format are ignored."""
    found: dict[str, dict[Labels, float]] = {}
    # Values of labels may contain other characters that `splitlines` takes for the end of a line.
    for line in text.split("\n"):
        matched = _LINE.match(line)
        if matched is None:
            continue
        labels = tuple(sorted(_LABEL.findall(matched["labels"] or "")))
        try:
            found.setdefault(matched["name"], {})[labels] = float(matched["value"])
        except ValueError:
            continue
    return found


def broker_metrics(found: dict[str, dict[Labels, float]]) -> BrokerMetrics:
    """Return the metrics that `top` shows."""
    connections = found.get(_CONNECTIONS)
    return BrokerMetrics(
        messages_in=_by_label(found, f"{_TOPICS}messagesin_total", "topic"),
        bytes_in=_by_label(found, f"{_TOPICS}bytesin_total", "topic"),
        bytes_out=_by_label(found, f"{_TOPICS}bytesout_total", "topic"),
        purgatories={
            k: int(v) for k, v in _by_label(found, _PURGATORY, "delayedOperation").items()
        },
        requests=_by_label(found, _REQUESTS, "request"),
        connections=int(sum(connections.values())) if connections is not None else None,
        cpu_seconds=_single(found, "process_cpu_seconds_total"),
        resident_bytes=_whole(found, "process_resident_memory_bytes"),
        open_files=_whole(found, "process_open_fds"),
        principals=_principals(found),
        request_times=_request_times(found),
        clients=_clients(found),
    )


def _request_times(found: dict[str, dict[Labels, float]]) -> dict[str, dict[float, float]]:
    times: dict[str, dict[float, float]] = {}
    for labels, number in found.get(_REQUEST_TIMES, {}).items():
        tags = dict(labels)
        times.setdefault(tags["request"], {})[float(tags["le"])] = number
    return times


def _clients(found: dict[str, dict[Labels, float]]) -> dict[ClientKey, Traffic]:
    counts = [
        found.get(f"{_CLIENTS}{each}_total", {}) for each in ("requests", "bytes_in", "bytes_out")
    ]
    clients = {}
    for labels in counts[0]:
        tags = {name: _unescaped(text) for name, text in labels}
        key = ClientKey(tags["principal"], tags["client_id"])
        clients[key] = Traffic(*(int(each.get(labels, 0)) for each in counts))
    return clients


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], text)


def _principals(found: dict[str, dict[Labels, float]]) -> dict[str, PrincipalMetrics]:
    throttled: dict[str, float] = {}
    for metric in _THROTTLE_TIMES:
        for labels, value in found.get(metric, {}).items():
            user = dict(labels).get("user", "")
            # NaN: the quota did not throttle its clients in the last minute.
            if value > 0:
                throttled[user] = max(value, throttled.get(user, 0.0))
    counts: dict[str, int] = {}
    listeners: dict[str, set[str]] = {}
    for labels, value in found.get(_PRINCIPALS, {}).items():
        tags = dict(labels)
        principal = _unescaped(tags["principal"])
        counts[principal] = counts.get(principal, 0) + int(value)
        listeners.setdefault(principal, set()).add(tags["listener"])
    if counts.keys() <= {_ANONYMOUS}:
        return {}
    return {
        principal: PrincipalMetrics(
            count,
            frozenset(listeners[principal]),
            throttled.get(sanitized_user(principal.partition(":")[2])),
        )
        for principal, count in counts.items()
    }


def _by_label(found: dict[str, dict[Labels, float]], name: str, label: str) -> dict[str, float]:
    sums: dict[str, float] = {}
    for labels, value in found.get(name, {}).items():
        of = dict(labels).get(label)
        if of is not None:
            sums[of] = sums.get(of, 0.0) + value
    return sums


def _single(found: dict[str, dict[Labels, float]], name: str) -> float | None:
    return found.get(name, {}).get(())


def _whole(found: dict[str, dict[Labels, float]], name: str) -> int | None:
    value = _single(found, name)
    return None if value is None else int(value)


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
