"""The rate of connection attempts to an unreachable node, and growing delays."""

from __future__ import annotations

import pytest

from barnabas.network.reconnect_backoff import NODE_BACKOFF, ReconnectBackoff, exponential_ms
from barnabas.runtime.rng import SeededRng


def attempts(backoff: ReconnectBackoff, within_ms: float) -> int:
    """How many come within a time, if each fails at once."""
    rng, now_ms, failures = SeededRng(1), 0.0, 0
    while now_ms <= within_ms:
        failures += 1
        now_ms += backoff.delay_ms(failures, rng)
    return failures


@pytest.mark.parametrize(
    ("failures", "expected_ms"), [(0, 50), (1, 50), (2, 100), (5, 800), (6, 1_000), (10**9, 1_000)]
)
def test_a_delay_doubles_up_to_its_limit(failures: int, expected_ms: float) -> None:
    assert exponential_ms(50, 1_000, failures) == expected_ms


def test_a_delay_may_grow_slowly() -> None:
    assert exponential_ms(100, 10_000, 3, factor=1.5) == 225


def test_clients_double_the_delay_up_to_their_limit() -> None:
    rng = SeededRng(1)
    backoff = ReconnectBackoff(50.0, 1000.0)
    for failures, full_ms in ((1, 50), (2, 100), (5, 800), (6, 1000), (1000, 1000)):
        assert 0.8 * full_ms <= backoff.delay_ms(failures, rng) <= 1.2 * full_ms
    assert backoff.delay_ms(0, rng) == 0


def test_nodes_retry_often_at_first_and_rarely_later() -> None:
    assert attempts(NODE_BACKOFF, 200) >= 6
    assert attempts(NODE_BACKOFF, 1_000) >= 9
    assert attempts(NODE_BACKOFF, 60_000) <= 140
