"""A metric in the form that exporters read: a name, and one value per set of tags."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    """The count and sum of one distribution, with quantiles or with numbers by size."""

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
