"""Distributions of times: four buckets per doubling."""

from __future__ import annotations

from math import inf, isnan

import pytest

from barnabas.metrics import names
from barnabas.metrics.measurements import quantiles_of
from barnabas.metrics.registry import Summary
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.server.dispatch.request_statistics import (
    ApiStatistics,
    RequestStatistics,
    Times,
    bucket_of,
    middle_of,
)
from barnabas.server.metrics.node_metrics import request_families


def quantile(times: Times, fraction: float) -> float:
    return quantiles_of(times.by_bucket(), middle_of, (fraction,))[fraction]


def test_bucket_sizes_grow_with_the_time() -> None:
    assert bucket_of(0.0) == 0
    times = [0.001 * 1.1**step for step in range(230)]
    buckets = [bucket_of(each) for each in times]
    assert buckets == sorted(buckets)
    assert buckets[0] < 8
    assert buckets[-1] < len(Times().counts)


@pytest.mark.parametrize("duration_ms", [0.02, 0.1, 1.0, 7.3, 500.0, 60_000.0])
def test_a_quantile_is_accurate_within_an_eighth(duration_ms: float) -> None:
    times = Times()
    for _ in range(10):
        times.add(duration_ms)
    assert quantile(times, 0.5) == pytest.approx(duration_ms, rel=0.125)


def test_quantiles_distinguish_usual_from_rare_times() -> None:
    times = Times()
    for _ in range(99):
        times.add(1.0)
    times.add(1000.0)
    assert quantile(times, 0.5) == pytest.approx(1.0, rel=0.125)
    assert quantile(times, 0.999) == pytest.approx(1000.0, rel=0.125)
    assert times.total_ms == 1099.0


def test_times_of_hours_are_in_the_last_bucket() -> None:
    times = Times()
    times.add(1e12)
    assert times.count == 1


def test_a_time_of_zero_is_counted_as_zero() -> None:
    times = Times().with_zeros(10)
    assert quantile(times, 0.99) == 0.0
    assert times.count == 10


def test_times_are_counted_up_to_each_bound() -> None:
    times = Times()
    for duration_ms in (0.1, 0.9, 1.1, 3.0, 1e9):
        times.add(duration_ms)
    assert times.numbers_below([0.25, 1.0, 2.0, 4.0, 16384.0]) == [1, 2, 3, 4, 4]
    assert times.with_zeros(2).numbers_below([0.25]) == [3]


def test_a_histogram_never_shrinks_when_a_request_is_found_to_be_slow() -> None:
    """Prometheus would take a number that falls for a restart of the node."""
    statistics = RequestStatistics()
    api = statistics.of(0, "Produce", 13, ProduceResponse)
    api.versions[9] = 2

    def exposed() -> dict[float, int]:
        (family,) = [
            each for each in request_families(statistics, 0.0) if each.name == names.REQUEST_SECONDS
        ]
        ((_, summary),) = family.samples
        assert isinstance(summary, Summary)
        return {**summary.buckets, inf: summary.number}

    for _ in range(2):
        api.immediate.add(1.5)
    before = exposed()
    assert (before[0.001], before[0.002], before[inf]) == (0, 2, 2)
    # The response of one of them waits for five seconds.
    api.immediate.remove(1.5)
    api.parked_total.add(5000.0)
    after = exposed()
    assert all(after[bound] >= number for bound, number in before.items())
    assert (after[0.002], after[inf]) == (2, 2)


def test_quantiles_of_a_metric_forget_a_slow_request_after_a_minute() -> None:
    api = ApiStatistics(0, "Produce", 13, ProduceResponse)
    statistics = of_one(api)

    def slowest_ms(now_ms: float) -> float:
        families = {each.name: each for each in request_families(statistics, now_ms)}
        ((_, summary),) = families[names.REQUEST_TOTAL_TIME].samples
        assert isinstance(summary, Summary)
        assert summary.number == api.immediate.count
        return summary.quantiles[0.999]

    api.immediate.add(1000.0)
    assert slowest_ms(0) == pytest.approx(1000, rel=0.125)
    api.immediate.add(1.0)
    assert slowest_ms(15_000) == pytest.approx(1000, rel=0.125)
    assert slowest_ms(30_000) == pytest.approx(1, rel=0.125)
    assert isnan(slowest_ms(60_000))


def test_the_queue_time_is_part_of_the_total_time() -> None:
    """As Kafka's TotalTimeMs, which begins when the request has been received."""
    api = ApiStatistics(0, "Produce", 13, ProduceResponse)
    api.versions[9] += 2
    api.immediate.add(1.0)
    api.count_queued(5.0, 2.0)
    families = {each.name: each for each in request_families(of_one(api), 0.0)}

    def total_ms(name: str) -> tuple[int, float]:
        ((_, summary),) = families[name].samples
        return summary.number, summary.total

    assert total_ms(names.REQUEST_QUEUE_TIME) == (2, 5.0)
    assert total_ms(names.REQUEST_LOCAL_TIME) == (2, 3.0)
    assert total_ms(names.REQUEST_REMOTE_TIME) == (2, 0.0)
    assert total_ms(names.REQUEST_TOTAL_TIME) == (2, 8.0)


def of_one(api: ApiStatistics) -> RequestStatistics:
    statistics = RequestStatistics()
    statistics.by_api[api.api_key] = api
    return statistics
