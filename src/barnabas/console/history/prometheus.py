"""Lines from a Prometheus server that collects the metrics of the brokers.

It has a longer history than a console, and one for the time before the console started. The
queries use Kafka's names of metrics; those for latencies exist on Barnabas only.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from barnabas.runtime.web import WebRequest, fetch

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIMEOUT_S = 4.0
_POINTS = 120
_STEP_MIN_S = 5
_TOPIC = "topic/"
_METRICS = "kafka_server_brokertopicmetrics_"
_COUNTERS = {
    "records_in": f"{_METRICS}messagesin_total",
    "bytes_in": f"{_METRICS}bytesin_total",
    "bytes_out": f"{_METRICS}bytesout_total",
}
_USERS_TOPICS = 'topic!="",topic!~"__.*"'
_LATENCIES = {
    "produce_p50": ("Produce", 0.5),
    "produce_p99": ("Produce", 0.99),
    "fetch_p50": ("Fetch", 0.5),
    "fetch_p99": ("Fetch", 0.99),
}


class PrometheusError(Exception):
    """The server cannot be asked; the message says why."""


class Prometheus(NamedTuple):
    """A Prometheus server.

    Args:
        url: Its address, such as http://prometheus.example:9090.
        labels: Labels that choose the brokers of this cluster, such as `cluster="east"`.
    """

    url: str
    labels: str = ""

    def knows(self, name: str) -> bool:
        """Return whether there is a query for the series of this name."""
        return name in _COUNTERS or name in _LATENCIES or name.startswith(_TOPIC)

    def points(self, name: str, begin: float, end: float) -> Sequence[tuple[float, float | None]]:
        """Return the points of a series between two times (s since 1970). Blocks.

        Raises:
            PrometheusError: The server does not answer, or refuses the query.
        """
        step = max(_STEP_MIN_S, math.ceil((end - begin) / _POINTS))
        fields = {"query": self._query(name, step), "start": begin, "end": end, "step": step}
        url = f"{self.url.rstrip('/')}/api/v1/query_range?{urlencode(fields)}"
        try:
            found = json.loads(fetch(WebRequest(url, timeout_s=_TIMEOUT_S)))
        except (OSError, ValueError) as error:
            raise PrometheusError(f"{self.url}: {error}") from None
        return _points(found)

    def _query(self, name: str, step: int) -> str:
        # A window of several scrapes, which are up to a minute apart.
        window = f"[{max(120, 2 * step)}s]"
        if name in _LATENCIES:
            request, quantile = _LATENCIES[name]
            chosen = self._chosen(f'request="{request}"')
            rates = f"sum by (le) (rate(barnabas_request_seconds_bucket{chosen}{window}))"
            return f"1000 * histogram_quantile({quantile}, {rates})"
        if name.startswith(_TOPIC):
            chosen = self._chosen(f'topic="{_quoted(name.removeprefix(_TOPIC))}"')
            return f"sum(rate({_COUNTERS['records_in']}{chosen}{window}))"
        return f"sum(rate({_COUNTERS[name]}{self._chosen(_USERS_TOPICS)}{window}))"

    def _chosen(self, label: str) -> str:
        return "{" + ",".join(filter(None, (label, self.labels))) + "}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _points(found: Any) -> list[tuple[float, float | None]]:
    try:
        results = found["data"]["result"]
        pairs = [(float(at), float(text)) for at, text in results[0]["values"]] if results else []
    except (KeyError, TypeError, ValueError, IndexError):
        raise PrometheusError("the server sent no series of values") from None
    return [(at, value if math.isfinite(value) else None) for at, value in pairs]
