"""The row of a metric in the catalogues."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.metrics.registry import MetricKind


class MetricRow(NamedTuple):
    """The properties of a metric that are known in advance."""

    kind: MetricKind
    # Names of its tags. A sample without these tags is the total.
    tags: tuple[str, ...]
    text: str
