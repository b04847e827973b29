"""Rates over sampled windows, and the time that brings them back to a limit."""

from __future__ import annotations

import pytest

from barnabas.server.quotas.rate import QuotaRate


def rate() -> QuotaRate:
    return QuotaRate(11, 1000.0)


def test_a_burst_counts_over_all_windows_but_one() -> None:
    used = rate()
    used.record(1000.0, 5000.0)
    assert used.measure(5000.0) == (pytest.approx(100.0), 10_000.0)


def test_the_throttle_time_is_the_excess_divided_by_the_limit() -> None:
    used = rate()
    used.record(3000.0, 0.0)
    # 300 per second over 10 s where 100 are allowed: 20 s of silence.
    assert used.throttle_ms(100.0, 0.0) == pytest.approx(20_000.0)
    assert used.throttle_ms(300.0, 0.0) == 0.0


def test_samples_older_than_all_windows_are_forgotten() -> None:
    used = rate()
    used.record(1000.0, 0.0)
    assert used.measure(10_999.0)[0] > 0
    assert not used.is_idle(10_999.0)
    assert used.measure(11_000.0)[0] == 0.0
    assert used.is_idle(11_000.0)


def test_a_steady_use_is_measured_exactly() -> None:
    used = rate()
    for second in range(60):
        used.record(100.0, second * 1000.0)
    # The newest second has just begun: between 10 and 11 windows are kept.
    assert used.measure(59_000.0)[0] == pytest.approx(100.0, rel=0.2)


def test_a_reverted_use_does_not_count() -> None:
    used = rate()
    used.record(500.0, 0.0)
    used.record(-500.0, 10.0)
    assert used.measure(20.0)[0] == 0.0
