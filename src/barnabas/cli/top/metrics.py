"""Reading a broker's metrics listener: Prometheus text with Kafka's names."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["BrokerMetrics", "MetricsError", "fetch_metrics", "parse_metrics", "scrape"]

_TIMEOUT_S = 5.0
_LINE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_TOPICS = "kafka_server_brokertopicmetrics_"
_PURGATORY = "kafka_server_delayedoperationpurgatory_numdelayedoperations"
_CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"
_REQUESTS = "kafka_network_requestmetrics_requests_total"

Labels: TypeAlias = tuple[tuple[str, str], ...]


class MetricsError(Exception):
    """A metrics listener that could not be read; says why and what to do."""


@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """What one scrape has told; counters since the broker's start, None where it has none."""

    # By topic.
    messages_in: dict[str, float]
    bytes_in: dict[str, float]
    bytes_out: dict[str, float]
    # Requests that wait, by kind.
    purgatories: dict[str, int]
    # Requests answered, by API.
    requests: dict[str, float]
    connections: int | None
    cpu_seconds: float | None
    resident_bytes: int | None
    open_files: int | None


def scrape(address: str) -> BrokerMetrics:
    """What `top` shows of the metrics at HOST:PORT.

    Raises:
        MetricsError: it does not answer, or not with metrics.
    """
    return broker_metrics(fetch_metrics(address))


def fetch_metrics(address: str) -> dict[str, dict[Labels, float]]:
    """All metrics at HOST:PORT, as `parse_metrics` gives them.

    Raises:
        MetricsError: it does not answer, or not with metrics.
    """
    url = f"http://{address}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            text = answer.read().decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        hint = "start the broker with --metrics HOST:PORT, or set metrics.listener"
        raise MetricsError(f"{url}: {reason}; {hint}") from None
    return parse_metrics(text)


def parse_metrics(text: str) -> dict[str, dict[Labels, float]]:
    """Values by metric and labels; lines that are none are left out."""
    found: dict[str, dict[Labels, float]] = {}
    for line in text.splitlines():
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
    """What `top` shows of it."""
    connections = found.get(_CONNECTIONS)
    return BrokerMetrics(
        _by_label(found, f"{_TOPICS}messagesin_total", "topic"),
        _by_label(found, f"{_TOPICS}bytesin_total", "topic"),
        _by_label(found, f"{_TOPICS}bytesout_total", "topic"),
        {k: int(v) for k, v in _by_label(found, _PURGATORY, "delayedOperation").items()},
        _by_label(found, _REQUESTS, "request"),
        int(sum(connections.values())) if connections is not None else None,
        _single(found, "process_cpu_seconds_total"),
        _whole(found, "process_resident_memory_bytes"),
        _whole(found, "process_open_fds"),
    )


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
