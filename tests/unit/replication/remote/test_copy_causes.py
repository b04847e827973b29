"""A leader says why its oldest closed segment is not in the tier yet."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.record.builder import BatchBuilder
from barnabas.replication.remote.copy_causes import CopyCause
from barnabas.storage.remote.config import RemoteLogConfig
from unit.replication.remote.tiered_broker import PARTITION, TieredBroker


def waiting(broker: TieredBroker) -> list[tuple[int, CopyCause]]:
    """Return the first offset of the oldest segment and its cause, after a sweep."""
    broker.sweep()
    found = list(broker.tier.waiting_segments())
    assert all(each.partition == PARTITION for each in found)
    return [(each.base_offset, each.cause) for each in found]


def test_nothing_waits_in_a_partition_that_is_copied() -> None:
    broker = TieredBroker()
    broker.fill(3)
    assert waiting(broker) == []


def test_metadata_that_is_not_read_is_the_cause() -> None:
    broker = TieredBroker()
    broker.metadata.is_ready = False
    broker.restart()
    broker.fill(2)
    assert waiting(broker) == [(0, CopyCause.METADATA)]
    assert broker.tier.unready_count() == 1
    broker.metadata.become_ready()
    assert waiting(broker) == []
    assert broker.tier.unready_count() == 0


def test_events_that_cannot_be_written_are_the_cause() -> None:
    broker = TieredBroker()
    broker.metadata.errors.extend([ErrorCode.REQUEST_TIMED_OUT] * 1_000)
    broker.fill(2)
    assert waiting(broker) == [(0, CopyCause.METADATA_WRITE)]


def test_records_that_are_not_committed_are_the_cause() -> None:
    broker = TieredBroker(replicas=(1, 2))
    broker.fill(3)
    assert waiting(broker) == [(0, CopyCause.UNCOMMITTED)]
    broker.follow(2, 3)
    assert waiting(broker) == []


def test_an_open_transaction_is_the_cause() -> None:
    broker = TieredBroker()
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    builder.append(broker.runtime.clock.wall_ms(), None, b"v" * 50)
    broker.append(memoryview(builder.build()))
    broker.fill(3)
    assert broker.log.last_stable_offset == 0
    assert broker.log.high_watermark == 4
    assert waiting(broker) == [(0, CopyCause.TRANSACTION)]


def test_the_copy_lag_is_the_cause() -> None:
    broker = TieredBroker(remote_copy_lag_ms=3_600_000, remote_copy_lag_bytes=-1)
    broker.fill(3)
    assert waiting(broker) == [(0, CopyCause.COPY_LAG)]


def test_the_quota_is_the_cause() -> None:
    broker = TieredBroker(copy_bytes_per_second=1)
    broker.fill(5)
    [(base_offset, cause)] = waiting(broker)
    assert (base_offset, cause) == (broker.segments()[-1][1] + 1, CopyCause.QUOTA)


def test_the_limit_of_known_segments_is_the_cause() -> None:
    broker = TieredBroker(config=RemoteLogConfig(barnabas_remote_segments_max=2))
    broker.fill(3)
    broker.sweep()
    broker.fill(3)
    assert waiting(broker) == [(2, CopyCause.SEGMENTS_MAX)]


@pytest.mark.parametrize(
    ("fault", "value", "cause"),
    [
        ("unavailable", 1.0, CopyCause.UNAVAILABLE),
        ("is_refusing", True, CopyCause.REFUSED),
        ("is_full", True, CopyCause.FULL),
    ],
)
def test_the_kind_of_a_failure_is_the_cause_until_the_next_success(
    fault: str, value: object, cause: CopyCause
) -> None:
    broker = TieredBroker()
    broker.fill(2)
    broker.sweep()
    setattr(broker.store.faults, fault, value)
    broker.fill(2)
    assert waiting(broker) == [(1, cause)]
    assert broker.tier.health.failures[cause] >= 1
    setattr(broker.store.faults, fault, type(value)(0))
    broker.wait(120_000)
    assert waiting(broker) == []


def test_the_time_counts_from_the_copy_of_the_segment_before() -> None:
    broker = TieredBroker()
    broker.store.faults.unavailable = 1.0
    broker.fill(3)
    broker.sweep()
    [first] = broker.tier.waiting_segments()
    broker.sweep()
    [later] = broker.tier.waiting_segments()
    assert (later.base_offset, later.since_ms) == (0, first.since_ms)
    assert broker.runtime.clock.monotonic_ms() - later.since_ms > 30_000


def test_a_broker_without_the_leadership_says_nothing() -> None:
    broker = TieredBroker(replicas=(1, 2))
    broker.fill(3)
    assert len(waiting(broker)) == 1
    broker.resign()
    assert waiting(broker) == []
