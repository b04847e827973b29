"""What the distributions of share fetches and share partitions count."""

from __future__ import annotations

import pytest

from barnabas.server.share.records.acquisition import AcquiredRange
from barnabas.server.share.share_meters import FetchMeters, PartitionMeters, ShareMeters
from barnabas.sim.clock import SimClock, SimScheduler


def test_a_read_counts_its_time_and_its_share_of_the_time_since_the_previous_read() -> None:
    meters = PartitionMeters(0.0)
    meters.count_read(30.0, 40.0)
    meters.count_read(90.0, 140.0)
    assert (meters.lock_ms.count, meters.lock_ms.total) == (2, 60.0)
    # 10 of 40 ms, and 50 of 100 ms.
    assert meters.lock_percent.smallest == pytest.approx(25.0)
    assert meters.lock_percent.largest == pytest.approx(50.0)
    # Two reads in the same moment have no ratio.
    meters.count_read(140.0, 140.0)
    assert (meters.lock_ms.count, meters.lock_percent.count) == (3, 2)


def test_a_batch_is_counted_when_it_is_acquired_for_the_first_time() -> None:
    meters = PartitionMeters(0.0)
    meters.count_acquired([AcquiredRange(0, 9, 1), AcquiredRange(10, 10, 2)])
    assert (meters.batch_records.count, meters.batch_records.total) == (1, 10)


def test_a_fetch_counts_how_long_it_waits_before_each_read() -> None:
    scheduler, shares = SimScheduler(), ShareMeters()
    group = shares.of_group("g")
    partitions = [PartitionMeters(0.0), PartitionMeters(0.0)]
    fetch = FetchMeters(SimClock(scheduler), group, requested=4)
    scheduler.run_for(5)
    # Nothing can be read yet.
    fetch.end_read([])
    assert group.acquire_ms.count == 0
    fetch.begin_read()
    scheduler.run_for(2)
    fetch.end_read(partitions)
    scheduler.run_for(30)
    fetch.begin_read()
    fetch.end_read(partitions[:1])
    fetch.complete(1)
    assert (group.acquire_ms.smallest, group.acquire_ms.largest) == (5.0, 30.0)
    assert [each.lock_ms.count for each in partitions] == [2, 1]
    assert group.fetch_percent.total == 25.0
    assert shares.of_group("g") is group
