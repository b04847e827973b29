"""Retries of the client: backoff, and the timer of the next attempt."""

from __future__ import annotations

from math import inf

import pytest

from barnabas.client.retries import Backoff, RetryTimer
from barnabas.runtime.rng import SeededRng
from unit.client.scripted_cluster import ScriptedCluster


@pytest.mark.parametrize(
    ("attempts", "full_ms"), [(0, 100), (1, 100), (2, 200), (4, 800), (5, 1_000), (10**6, 1_000)]
)
def test_a_delay_doubles_up_to_its_limit_within_a_fifth(attempts: int, full_ms: float) -> None:
    backoff = Backoff(SeededRng(1), 100, 1_000)
    delays = [backoff.delay_ms(attempts) for _ in range(200)]
    assert all(0.8 * full_ms <= each <= 1.2 * full_ms for each in delays)
    assert min(delays) < 0.85 * full_ms
    assert max(delays) > 1.15 * full_ms


def test_the_first_delay_is_kept_if_the_limit_is_below_it() -> None:
    backoff = Backoff(SeededRng(1), 500, 100)
    assert 400 <= backoff.delay_ms(1) <= 600
    assert 400 <= backoff.delay_ms(9) <= 600


class Attempts:
    """A retry timer with a backoff of 100 ms to 1 s (plus or minus 20 %), and what it started."""

    def __init__(self, timeout_ms: float = inf) -> None:
        self.cluster = ScriptedCluster()
        self.retry: RetryTimer = self.cluster.retry_timer(timeout_ms)
        self.started_ms: list[float] = []

    def attempt(self) -> None:
        self.started_ms.append(self.cluster.time.now)

    def advance(self, delay_ms: float) -> None:
        self.cluster.time.advance(delay_ms)


def test_the_delay_grows_with_consecutive_failures() -> None:
    retry = Attempts().retry
    delays = [retry.next_delay_ms() or 0.0 for _ in range(5)]
    assert retry.failures == 5
    for delay_ms, middle_ms in zip(delays, (100, 200, 400, 800, 1000), strict=True):
        assert 0.8 * middle_ms <= delay_ms <= 1.2 * middle_ms


def test_a_success_resets_the_delay() -> None:
    retry = Attempts().retry
    retry.next_delay_ms()
    retry.next_delay_ms()
    retry.reset()
    assert (retry.next_delay_ms() or 0.0) <= 120


def test_the_next_attempt_starts_once_after_the_delay() -> None:
    attempts = Attempts()
    assert attempts.retry.retry(attempts.attempt)
    assert attempts.retry.is_scheduled
    attempts.advance(79)
    assert attempts.started_ms == []
    attempts.advance(42)
    assert len(attempts.started_ms) == 1
    assert not attempts.retry.is_scheduled
    assert attempts.retry.due_ms is None


def test_no_attempt_starts_after_the_timeout() -> None:
    attempts = Attempts(timeout_ms=70)
    assert not attempts.retry.retry(attempts.attempt)
    assert not attempts.retry.is_scheduled
    assert attempts.retry.failures == 1


def test_a_canceled_attempt_does_not_start() -> None:
    attempts = Attempts()
    attempts.retry.retry(attempts.attempt)
    attempts.retry.cancel()
    attempts.advance(1000)
    assert attempts.started_ms == []


def test_the_owner_may_start_the_attempt_itself_when_it_is_due() -> None:
    attempts = Attempts()
    attempts.retry.hold_off()
    assert attempts.retry.due_ms is not None
    assert not attempts.retry.is_scheduled
    attempts.retry.clear_if_due()
    assert attempts.retry.due_ms is not None
    attempts.advance(121)
    attempts.retry.clear_if_due()
    assert attempts.retry.due_ms is None


def test_two_scheduled_attempts_are_refused() -> None:
    attempts = Attempts()
    attempts.retry.retry(attempts.attempt)
    with pytest.raises(AssertionError, match="scheduled already"):
        attempts.retry.retry(attempts.attempt)
