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


class Summary(NamedTuple):
    """The count, sum and quantiles of one distribution."""

    number: int
    total: float
    # Fraction -> value, e.g. 0.99 for the 99th percentile.
    quantiles: Mapping[float, float]


class MetricFamily(msgspec.Struct, frozen=True):
    """All samples with one metric name."""

    name: str
    # May be computed during the iteration, which can span several turns of the event loop.
    samples: Iterable[tuple[Tags, float | Summary]]
