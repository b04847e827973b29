"""State per client is bounded."""

from __future__ import annotations

from barnabas.server.quotas.rate import UsedRecently

IDLE_AFTER_MS = 100.0


def table(entries_max: int) -> UsedRecently[int, float]:
    """Values are the times of last use."""
    return UsedRecently(lambda used_ms, now_ms: now_ms - used_ms > IDLE_AFTER_MS, entries_max)


def test_new_entries_evict_idle_ones() -> None:
    kept = table(1_000_000)
    for now in range(5_000):
        kept.add(now, float(now), float(now))
    assert len(kept) <= 2 * IDLE_AFTER_MS + 1000
    assert kept.get(4_999) == 4_999.0
    assert kept.get(0) is None


def test_entries_in_use_stay() -> None:
    kept = table(1_000_000)
    kept.add(-1, 1e9, 0.0)
    for now in range(5_000):
        kept.add(now, float(now), float(now))
    assert kept.get(-1) == 1e9


def test_the_limit_holds_even_if_all_entries_are_in_use() -> None:
    kept = table(200)
    for number in range(5_000):
        kept.add(number, 0.0, 0.0)
    assert len(kept) == 200
    kept.clear()
    assert not dict(kept.items())


def test_expired_entries_are_removed_together() -> None:
    kept = table(200)
    for now in range(10):
        kept.add(now, float(now), float(now))
    kept.remove_if(lambda used_ms: used_ms < 7)
    assert dict(kept.items()) == {7: 7.0, 8: 8.0, 9: 9.0}
