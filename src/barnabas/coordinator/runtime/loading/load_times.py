"""Metrics of the loading of state partitions, under the names of Kafka's coordinators."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from barnabas.metrics.registry import MetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metrics.measurements import SampledValues


def load_time_families(
    load_times: SampledValues, now_ms: float, called: tuple[str, str]
) -> Iterator[MetricFamily]:
    """Yield the average and the maximum of the last minute; NaN if nothing was loaded.

    Args:
        load_times: the durations of loading, in ms.
        now_ms: the monotonic clock.
        called: the names of the average and of the maximum.
    """
    for name, value in zip(
        called, (load_times.average(now_ms), load_times.maximum(now_ms)), strict=True
    ):
        yield MetricFamily(name, [((), math.nan if value is None else value)])
