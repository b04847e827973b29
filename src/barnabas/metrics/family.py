"""A metric as somebody looks at it: a name, and a value per set of tags."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Tags: TypeAlias = "tuple[tuple[str, str], ...]"


class MetricKind(enum.Enum):
    """What its values are."""

    # Grows from the start of the process on.
    COUNTER = "counter"
    GAUGE = "gauge"
    # A distribution: count, sum and quantiles.
    SUMMARY = "summary"


class Summary(NamedTuple):
    """One distribution."""

    number: int
    total: float
    # Value by fraction, 0.99 for the 99th percentile.
    quantiles: Mapping[float, float]


class MetricFamily(msgspec.Struct, frozen=True):
    """All values of one name."""

    name: str
    # Worked out while it is gone through, which may take several turns of the loop.
    samples: Iterable[tuple[Tags, float | Summary]]
