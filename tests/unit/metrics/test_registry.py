"""Counters, gauges, meters, histograms and their snapshot."""

from __future__ import annotations

import math

import pytest

from barnabas.metrics.measurements import Histogram, Meter, RecentBuckets
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
    registry.remove("a", {"topic": "t"})
    registry.remove("b", {"topic": "t", "partition": "1"})
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


def test_recent_quantiles_are_of_the_last_minute() -> None:
    scheduler = SimScheduler()
    clock = SimClock(scheduler)
    histogram = Histogram()
    for value, is_seen_s in ((1000.0, 45), (10.0, 45), (100.0, 45)):
        histogram.update(value)
        recent = histogram.recent_quantiles(clock.monotonic_ms())
        assert recent[0.999] == pytest.approx(value, rel=0.06)
        scheduler.run_for(is_seen_s * 1000)
    histogram.recent_quantiles(clock.monotonic_ms())
    scheduler.run_for(31_000)
    assert math.isnan(histogram.recent_quantiles(clock.monotonic_ms())[0.5])
    assert histogram.count == 3


@pytest.mark.parametrize("between_s", [1, 5, 15, 29, 30])
def test_a_value_is_recent_for_half_a_minute_to_a_minute(between_s: int) -> None:
    """How often anything reads the values changes neither limit."""
    recent = RecentBuckets()
    before = recent.select({1: 5}, 0.0)
    assert before == {1: 5}
    seen_s = [
        now_s
        for now_s in range(0, 300, between_s)
        if recent.select({1: 5} if now_s < 60 else {1: 5, 9: 1}, now_s * 1000.0).get(9)
    ]
    assert seen_s
    first_s, last_s = seen_s[0], seen_s[-1]
    assert 30 - between_s <= last_s - first_s <= 60


def test_an_empty_histogram_is_all_zeros() -> None:
    assert set(Histogram().snapshot().values()) == {0}
