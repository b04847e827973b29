"""Metrics in the Prometheus text format, in pieces, written with the prometheus-client library.

The names are those of the usual JMX exporter rules for Kafka. They consist of group, type and name
in lower case. `PerSec` becomes `_total`, and percentiles have the label `quantile`. A broker with
thousands of partitions has a hundred thousand values, so the text is created in pieces.
"""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from prometheus_client import generate_latest
from prometheus_client.core import Metric

from barnabas.metrics.catalogue import CATALOGUE
from barnabas.metrics.family import MetricKind, Summary
from barnabas.metrics.query_catalogue import QUERY_CATALOGUE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.metrics.catalogue import MetricRow
    from barnabas.metrics.family import MetricFamily, Tags

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
            lines = _text(name, row, piece).splitlines(keepends=True)
            # Only the first piece of a family has its header lines.
            yield b"".join(line for line in lines if not line.startswith(b"#"))


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
