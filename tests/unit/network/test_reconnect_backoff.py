"""How often a node that cannot be reached is tried."""

from __future__ import annotations

from barnabas.network.reconnect_backoff import NODE_BACKOFF, ReconnectBackoff
from barnabas.runtime.rng import SeededRng


def attempts(backoff: ReconnectBackoff, within_ms: float) -> int:
    """How many come within a time, if each fails at once."""
    rng, now_ms, failures = SeededRng(1), 0.0, 0
    while now_ms <= within_ms:
        failures += 1
        now_ms += backoff.delay_ms(failures, rng)
    return failures


def test_clients_double_the_delay_up_to_their_limit() -> None:
    rng = SeededRng(1)
    backoff = ReconnectBackoff(50.0, 1000.0)
    for failures, full_ms in ((1, 50), (2, 100), (5, 800), (6, 1000), (1000, 1000)):
        assert 0.8 * full_ms <= backoff.delay_ms(failures, rng) <= 1.2 * full_ms
    assert backoff.delay_ms(0, rng) == 0


def test_nodes_try_each_other_often_at_first_and_seldom_then() -> None:
    assert attempts(NODE_BACKOFF, 200) >= 6
    assert attempts(NODE_BACKOFF, 1_000) >= 9
    assert attempts(NODE_BACKOFF, 60_000) <= 140
