"""The slope of the memory of a process, and whether its descriptors and threads rise."""

from __future__ import annotations

import pytest

from chaos.resources import (
    ALLOWED_KIB_PER_MINUTE,
    DESCRIPTORS_MORE,
    THREADS_MORE,
    Leftovers,
    Sample,
    slope_max,
    use_of,
)

KIB, MINUTE_S = 1024, 60.0
NO_LIMIT = float("inf")


def samples(kib_per_minute: float, minutes: int = 60, **more: int) -> list[Sample]:
    """Return samples whose memory rises steadily, after a jump in the first minutes."""
    return [
        Sample(
            minute * MINUTE_S,
            int((50_000 * (minute > 5) + kib_per_minute * minute) * KIB),
            more.get("descriptors", 0) * (minute > minutes * 2 / 3),
            more.get("threads", 0) * (minute > minutes * 2 / 3),
        )
        for minute in range(minutes)
    ]


@pytest.mark.parametrize("slope", [0.0, 83.0, -10.0])
def test_the_slope_of_the_memory_leaves_out_the_warm_up(slope: float) -> None:
    assert use_of(samples(slope)).kib_per_minute == pytest.approx(slope, abs=0.1)


def test_a_slope_above_the_limit_is_a_problem() -> None:
    use = use_of(samples(83.0))
    assert use.problems(NO_LIMIT) == []
    assert use.problems(40.0) == ["resident memory rises by 83.0 KiB a minute"]


@pytest.mark.parametrize(
    ("what", "more"), [("descriptors", DESCRIPTORS_MORE), ("threads", THREADS_MORE)]
)
def test_descriptors_and_threads_must_not_rise(what: str, more: int) -> None:
    assert use_of(samples(0.0, **{what: more})).problems(NO_LIMIT) == []
    rising = use_of(samples(0.0, **{what: more + 1}))
    assert rising.problems(NO_LIMIT) == [f"{what} rise from 0 to {more + 1}"]


def test_the_limit_of_the_slope_grows_with_what_the_loads_have_made() -> None:
    nothing = Leftovers()
    assert slope_max(nothing, 600.0, nodes=3) == ALLOWED_KIB_PER_MINUTE
    made = Leftovers(groups_with_offset=300) + Leftovers(transactional_ids=100)
    made += Leftovers(producers_in_partitions=500, fetch_sessions=50)
    assert made == Leftovers(300, 100, 500, 50)
    # (300 * 1.2 + 100 * 0.9 + 500 * 0.4 + 50 * 0.8) KiB on three nodes in ten minutes.
    assert slope_max(made, 600.0, nodes=3) == pytest.approx(ALLOWED_KIB_PER_MINUTE + 23.0)
    assert slope_max(made, 1200.0, nodes=3) == pytest.approx(ALLOWED_KIB_PER_MINUTE + 11.5)
