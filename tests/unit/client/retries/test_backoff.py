"""The delay between two attempts of a client (KIP-580)."""

from __future__ import annotations

import pytest

from barnabas.client.retries.backoff import Backoff
from barnabas.runtime.rng import SeededRng


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
