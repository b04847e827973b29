"""Distributions of times: four buckets per doubling."""

from __future__ import annotations

import pytest

from barnabas.server.request_statistics import Times, bucket_of


def test_buckets_grow_with_time_and_begin_at_the_first() -> None:
    assert bucket_of(0.0) == 0
    times = [0.001 * 1.1**step for step in range(230)]
    buckets = [bucket_of(each) for each in times]
    assert buckets == sorted(buckets)
    assert buckets[0] < 8
    assert buckets[-1] < len(Times().counts)


@pytest.mark.parametrize("duration_ms", [0.02, 0.1, 1.0, 7.3, 500.0, 60_000.0])
def test_a_quantile_is_right_within_an_eighth(duration_ms: float) -> None:
    times = Times()
    for _ in range(10):
        times.add(duration_ms)
    assert times.quantile(0.5) == pytest.approx(duration_ms, rel=0.125)


def test_quantiles_tell_the_usual_from_the_rare() -> None:
    times = Times()
    for _ in range(99):
        times.add(1.0)
    times.add(1000.0)
    assert times.quantile(0.5) == pytest.approx(1.0, rel=0.125)
    assert times.quantile(0.999) == pytest.approx(1000.0, rel=0.125)
    assert times.total_ms == 1099.0


def test_what_takes_hours_falls_into_the_last_bucket() -> None:
    times = Times()
    times.add(1e12)
    assert times.count == 1


def test_those_that_took_no_time_count_as_none() -> None:
    times = Times().with_zeros(10)
    assert times.quantile(0.99) == 0.0
    assert times.count == 10
