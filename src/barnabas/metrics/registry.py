"""A registry of counters, gauges, meters and histograms by Kafka's names and tags.

Recording must be cheap: it is one addition for counters and meters. Rates are computed when they
are read. Exporters read metrics as families: a name, and one value for each set of tags.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import msgspec

from barnabas.metrics.measurements import Histogram, Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from barnabas.runtime.clock import Clock


Tags: TypeAlias = "tuple[tuple[str, str], ...]"


class MetricKind(enum.Enum):
    """The kind of a metric's values."""

    # Increases from the start of the process.
    COUNTER = "counter"
    GAUGE = "gauge"
    # A distribution: count, sum and quantiles.
    SUMMARY = "summary"
    # A distribution: count, sum and numbers of values by size.
    HISTOGRAM = "histogram"


class Summary(NamedTuple):
    """The count and sum of one distribution, with quantiles or with numbers by size.

    Count and sum are of all values since the start, quantiles of those of the last minute.
    """

    number: int
    total: float
    # Fraction -> value, e.g. 0.99 for the 99th percentile.
    quantiles: Mapping[float, float]
    # Of a histogram: bound -> number of values up to it, in ascending order. The numbers only grow.
    buckets: Mapping[float, int] = {}


class MetricFamily(msgspec.Struct, frozen=True):
    """All samples with one metric name."""

    name: str
    # May be computed during the iteration, which can span several turns of the event loop.
    samples: Iterable[tuple[Tags, float | Summary]]


MetricSource: TypeAlias = "Callable[[], Iterable[MetricFamily]]"
MetricValue: TypeAlias = "int | float | dict[str, float]"


class Counter:
    """A count that only increases."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def inc(self, amount: int = 1) -> None:
        """Increase the count."""
        self.count += amount


class Gauge:
    """A value that is computed when it is read."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read

    def value(self) -> float:
        """Return the current value."""
        return self._read()


Metric: TypeAlias = "Counter | Gauge | Meter | Histogram"
K = TypeVar("K", "Counter", "Meter", "Histogram")


class MetricsRegistry:
    """All metrics of a process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Metrics by name and tags.
        self._metrics: dict[tuple[str, Tags], Metric] = {}
        # Further families, which are computed for each snapshot.
        self._sources: list[MetricSource] = []

    def add_source(self, source: MetricSource) -> None:
        """Register a source of metrics that are not stored here but computed when they are read."""
        self._sources.append(source)

    def families(self) -> Iterator[MetricFamily]:
        """Yield all metrics as families; stored metrics with one name form one family."""
        now_ms = self._clock.monotonic_ms()
        by_name: dict[str, list[tuple[Tags, float | Summary]]] = {}
        for name, tags, metric in self:
            by_name.setdefault(name, []).append((tags, _reading(metric, now_ms)))
        for name, samples in by_name.items():
            yield MetricFamily(name, samples)
        for source in self._sources:
            yield from source()

    def counter(self, name: str, tags: Mapping[str, str] | None = None) -> Counter:
        """Return the counter with that name and tags; create it on the first call."""
        return self._find_or_add(name, tags, Counter, Counter)

    def gauge(self, name: str, tags: Mapping[str, str] | None, read: Callable[[], float]) -> None:
        """Register a gauge; it replaces an earlier gauge with the same name and tags."""
        self._metrics[name, _tags(tags)] = Gauge(read)

    def meter(self, name: str, tags: Mapping[str, str] | None = None) -> Meter:
        """Return the meter with that name and tags; create it on the first call."""
        return self._find_or_add(name, tags, Meter, lambda: Meter(self._clock))

    def histogram(self, name: str, tags: Mapping[str, str] | None = None) -> Histogram:
        """Return the histogram with that name and tags; create it on the first call."""
        return self._find_or_add(name, tags, Histogram, Histogram)

    def _find_or_add(
        self, name: str, tags: Mapping[str, str] | None, kind: type[K], make: Callable[[], K]
    ) -> K:
        key = (name, _tags(tags))
        known = self._metrics.get(key)
        if known is None:
            known = self._metrics[key] = make()
        assert isinstance(known, kind), key
        return known

    def remove(self, name: str, tags: Mapping[str, str] | None = None) -> None:
        """Remove one metric; do nothing if it does not exist."""
        self._metrics.pop((name, _tags(tags)), None)

    def __iter__(self) -> Iterator[tuple[str, Tags, Metric]]:
        """Yield the name, tags and metric, in the order of creation."""
        for (name, tags), metric in list(self._metrics.items()):
            yield name, tags, metric

    def snapshot(self) -> dict[str, MetricValue]:
        """Return the values by "name" or "name{tag=value,...}".

        The value of a meter or histogram is a dictionary of several numbers.
        """
        return {_label(name, tags): _value(metric) for name, tags, metric in self}


def _tags(tags: Mapping[str, str] | None) -> Tags:
    return tuple(sorted(tags.items())) if tags else ()


def _label(name: str, tags: Tags) -> str:
    if not tags:
        return name
    return name + "{" + ",".join(f"{tag}={value}" for tag, value in tags) + "}"


def summary_of(histogram: Histogram, now_ms: float) -> Summary:
    """Return the count and sum of all values of a histogram, and the quantiles of recent ones."""
    return Summary(histogram.count, histogram.total, histogram.recent_quantiles(now_ms))


def _reading(metric: Metric, now_ms: float) -> float | Summary:
    match metric:
        case Gauge():
            return metric.value()
        case Histogram():
            return summary_of(metric, now_ms)
        case _:
            return metric.count


def _value(metric: Metric) -> MetricValue:
    match metric:
        case Counter():
            return metric.count
        case Gauge():
            return metric.value()
        case _:
            return metric.snapshot()
