"""Copies and reads wait while their recent rate is above the limit."""

from __future__ import annotations

import math

from barnabas.replication.remote.remote_quota import RemoteQuota
from barnabas.sim.world import sim_runtime

UNLIMITED = 0x7FFF_FFFF_FFFF_FFFF


def quota_of(bytes_per_second: int):
    world, runtime = sim_runtime(1)
    return world, RemoteQuota(runtime.clock, bytes_per_second, 11, 1)


def test_bytes_above_the_rate_exceed_the_quota_until_they_are_old() -> None:
    world, quota = quota_of(100)
    assert not quota.is_exceeded
    quota.record(550)
    assert quota.is_exceeded
    world.run_for(5_000)
    assert quota.byte_rate() == 110.0
    world.run_for(1_000)
    assert not quota.is_exceeded
    world.run_for(6_000)
    assert quota.byte_rate() == 0.0


def test_nothing_exceeds_a_quota_without_limit() -> None:
    _, quota = quota_of(UNLIMITED)
    quota.record(1 << 50)
    assert not quota.is_exceeded


def test_the_limit_changes_at_once() -> None:
    _, quota = quota_of(UNLIMITED)
    quota.record(1_000)
    quota.bytes_per_second = 10
    assert quota.is_exceeded


def test_throttle_times_are_those_of_the_last_minute() -> None:
    world, quota = quota_of(100)
    assert math.isnan(quota.throttle_times().average)
    quota.on_throttled(1_000)
    quota.on_throttled(500)
    assert quota.throttle_times() == (750, 1_000)
    world.run_for(31_000)
    quota.on_throttled(100)
    assert quota.throttle_times().largest == 1_000
    world.run_for(31_000)
    assert quota.throttle_times() == (100, 100)
    world.run_for(120_000)
    assert math.isnan(quota.throttle_times().largest)
