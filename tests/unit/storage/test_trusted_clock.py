"""The clock for expiry: a jump of the wall clock is not trusted for a while."""

from __future__ import annotations

import logging

import pytest

from barnabas.storage.manager.trusted_clock import (
    JUMP_MS,
    OFF_MS_MAX,
    TrustedClock,
    TrustedTime,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
HOLD_MS = 6 * HOUR_MS
START_MS = 1_767_225_600_000


class TwoClocks:
    """A wall clock that can be set, and a monotonic one."""

    def __init__(self) -> None:
        self.wall = START_MS
        self.monotonic = 5_000.0

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> float:
        return self.monotonic

    def run(self, duration_ms: int) -> None:
        self.wall += duration_ms
        self.monotonic += duration_ms


def test_a_steady_wall_clock_is_trusted() -> None:
    clocks = TwoClocks()
    trusted = TrustedClock(clocks, HOLD_MS)
    for _ in range(50):
        clocks.run(7 * DAY_MS)
        assert trusted.wall_ms() == clocks.wall
    assert trusted.held_back_ms == 0


def test_a_jump_forward_is_not_trusted_and_time_continues() -> None:
    clocks = TwoClocks()
    trusted = TrustedClock(clocks, HOLD_MS)
    clocks.wall += 8 * DAY_MS
    assert trusted.wall_ms() == START_MS
    clocks.run(HOUR_MS)
    assert trusted.wall_ms() == START_MS + HOUR_MS
    assert trusted.held_back_ms == 8 * DAY_MS


def test_a_reverted_jump_has_no_effect() -> None:
    clocks = TwoClocks()
    trusted = TrustedClock(clocks, HOLD_MS)
    clocks.wall += 8 * DAY_MS
    trusted.wall_ms()
    clocks.run(HOLD_MS - 1)
    trusted.wall_ms()
    clocks.wall -= 8 * DAY_MS
    clocks.run(HOLD_MS)
    assert trusted.wall_ms() == clocks.wall
    assert trusted.state() == TrustedTime(clocks.wall, -1)


def test_a_lasting_jump_is_trusted_later() -> None:
    clocks = TwoClocks()
    trusted = TrustedClock(clocks, HOLD_MS)
    clocks.wall += 8 * DAY_MS
    trusted.wall_ms()
    clocks.run(HOLD_MS - 1)
    assert trusted.wall_ms() < clocks.wall
    clocks.run(1)
    assert trusted.wall_ms() == clocks.wall
    clocks.run(HOUR_MS)
    assert trusted.wall_ms() == clocks.wall


def test_a_further_jump_is_held_back_again() -> None:
    clocks = TwoClocks()
    trusted = TrustedClock(clocks, HOLD_MS)
    clocks.wall += 8 * DAY_MS
    trusted.wall_ms()
    clocks.run(HOLD_MS - 1)
    clocks.wall += 8 * DAY_MS
    trusted.wall_ms()
    clocks.run(HOLD_MS - 1)
    assert trusted.held_back_ms == 16 * DAY_MS
    clocks.run(1)
    assert trusted.held_back_ms == 0


def test_small_corrections_and_backward_jumps_are_trusted_immediately() -> None:
    clocks = TwoClocks()
    trusted = TrustedClock(clocks, HOLD_MS)
    for step in (JUMP_MS, -JUMP_MS, -8 * DAY_MS):
        clocks.wall += step
        assert trusted.wall_ms() == clocks.wall


def test_with_a_hold_of_zero_every_jump_is_trusted() -> None:
    clocks = TwoClocks()
    trusted = TrustedClock(clocks, 0)
    clocks.wall += 8 * DAY_MS
    assert trusted.wall_ms() == clocks.wall


def test_the_operator_ends_a_hold_by_a_config_change() -> None:
    clocks = TwoClocks()
    trusted = TrustedClock(clocks, HOLD_MS)
    clocks.wall += 8 * DAY_MS
    trusted.wall_ms()
    trusted.hold_ms = 0
    assert trusted.wall_ms() == clocks.wall
    trusted.hold_ms = HOLD_MS
    assert trusted.wall_ms() == clocks.wall


def test_a_restart_does_not_make_a_jump_trusted() -> None:
    clocks = TwoClocks()
    first = TrustedClock(clocks, HOLD_MS)
    clocks.wall += 8 * DAY_MS
    first.wall_ms()
    clocks.run(4 * HOUR_MS)
    known = first.state()
    clocks.run(60_000)
    second = TrustedClock(clocks, HOLD_MS)
    second.resume(known)
    assert second.wall_ms() == known.trusted_ms
    # The hours before the restart count.
    clocks.run(2 * HOUR_MS)
    assert second.wall_ms() == clocks.wall


@pytest.mark.parametrize(("off_ms", "is_believed"), [(OFF_MS_MAX, True), (30 * DAY_MS, False)])
def test_after_a_long_downtime_the_clock_is_not_trusted_immediately(
    off_ms: int, is_believed: bool
) -> None:
    clocks = TwoClocks()
    known = TrustedClock(clocks, HOLD_MS).state()
    clocks.run(off_ms)
    trusted = TrustedClock(clocks, HOLD_MS)
    trusted.resume(known)
    assert (trusted.wall_ms() == clocks.wall) is is_believed
    clocks.run(HOLD_MS)
    assert trusted.wall_ms() == clocks.wall


def test_a_jump_is_logged_once_with_values_and_advice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clocks = TwoClocks()
    trusted = TrustedClock(clocks, HOLD_MS)
    clocks.wall += 8 * DAY_MS
    with caplog.at_level(logging.WARNING, "barnabas"):
        for _ in range(10):
            clocks.run(1_000)
            trusted.wall_ms()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "ahead_hours=192.0 hold_hours=6.0" in warning
    assert "barnabas.retention.hold.ms=0" in warning
