"""Metrics of the log manager: the trusted clock and descriptor shortages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.family import MetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.storage.manager.log_manager import LogManager


def log_families(logs: LogManager) -> Iterator[MetricFamily]:
    """Yield all metric families of the log manager."""
    held_back_ms = logs.trusted_clock.held_back_ms
    yield MetricFamily(names.CLOCK_HELD_BACK, [((), held_back_ms / 1000)])
    yield MetricFamily(names.DESCRIPTOR_SHORTAGES, [((), logs.descriptor_relief.shortages)])
