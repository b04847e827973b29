"""Counters, gauges, meters, histograms and their snapshot."""

from __future__ import annotations

import pytest

from barnabas.metrics.measurements import Histogram, Meter
from barnabas.metrics.registry import MetricsRegistry
from barnabas.sim.clock import SimClock, SimScheduler


def test_equal_name_and_tags_return_the_same_counter() -> None:
    registry = MetricsRegistry(SimClock(SimScheduler()))
    registry.counter("a", {"topic": "t", "partition": "0"}).inc(2)
    registry.counter("a", {"partition": "0", "topic": "t"}).inc()
    assert registry.snapshot() == {"a{partition=0,topic=t}": 3}


def test_a_gauge_is_evaluated_when_it_is_read() -> None:
    registry = MetricsRegistry(SimClock(SimScheduler()))
    values = [1.0]
    registry.gauge("g", None, lambda: values[0])
    values[0] = 2.0
    assert registry.snapshot() == {"g": 2.0}


def test_removed_metrics_are_not_in_the_snapshot() -> None:
    registry = MetricsRegistry(SimClock(SimScheduler()))
    registry.counter("a", {"topic": "t"})
    registry.counter("b", {"topic": "t", "partition": "1"})
    registry.counter("c", {"topic": "u"})
    registry.remove_tagged("topic", "t")
    registry.remove("c", {"topic": "u"})
    registry.remove("c", {"topic": "u"})
    assert registry.snapshot() == {}


def test_a_meter_shows_the_rate_of_a_steady_load() -> None:
    scheduler = SimScheduler()
    meter = Meter(SimClock(scheduler))
    for _ in range(120):
        meter.mark(10)
        scheduler.run_for(1000)
        meter.rates()
    assert meter.count == 1200
    assert meter.mean_rate() == pytest.approx(10)
    assert meter.rates() == pytest.approx((10, 10, 10))


def test_a_meter_decays_by_the_minute() -> None:
    scheduler = SimScheduler()
    meter = Meter(SimClock(scheduler))
    meter.mark(500)
    scheduler.run_for(5000)
    assert meter.rates()[0] == pytest.approx(100)
    scheduler.run_for(60_000)
    one, five, fifteen = meter.rates()
    assert one == pytest.approx(100 / 2.718281828, rel=0.01)
    assert one < five < fifteen


def test_percentiles_are_accurate_within_five_percent() -> None:
    histogram = Histogram()
    for value in range(1, 10_001):
        histogram.update(value)
    assert histogram.percentile(0.5) == pytest.approx(5000, rel=0.06)
    assert histogram.percentile(0.99) == pytest.approx(9900, rel=0.06)
    assert histogram.snapshot()["mean"] == pytest.approx(5000.5)


def test_an_empty_histogram_is_all_zeros() -> None:
    assert set(Histogram().snapshot().values()) == {0}
