"""Leaders delete expired segments from the remote tier, and what no read needs."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from barnabas.storage.remote.config import RemoteLogConfig
from unit.replication.remote.tiered_broker import (
    DELETED,
    DELETING,
    FINISHED,
    STARTED,
    WHERE,
    TieredBroker,
)

HOUR_MS = 3_600_000


def test_old_segments_expire_and_the_log_start_rises() -> None:
    broker = TieredBroker(retention_ms=HOUR_MS)
    now_ms = broker.runtime.clock.wall_ms()
    broker.fill(2, timestamp=now_ms - 2 * HOUR_MS)
    broker.fill(2, timestamp=now_ms)
    broker.sweep()
    assert broker.segments(None) == [(2, 2)]
    assert broker.stored() == [2]
    assert broker.log.log_start_offset == 2


def test_an_old_segment_behind_a_new_one_stays() -> None:
    broker = TieredBroker(retention_ms=HOUR_MS)
    now_ms = broker.runtime.clock.wall_ms()
    broker.fill(1, timestamp=now_ms)
    broker.fill(2, timestamp=now_ms - 2 * HOUR_MS)
    broker.sweep()
    assert broker.segments() == [(0, 0), (1, 1)]
    assert broker.log.log_start_offset == 0


def test_segments_above_the_size_expire() -> None:
    broker = TieredBroker(retention_bytes=0)
    broker.fill(5)
    broker.wait()
    size = broker.log.segments[0].size
    broker.configure(retention_bytes=2 * size)
    broker.sweep()
    # One segment in the tier, and the active one.
    assert broker.segments(None) == [(3, 3)]
    assert broker.log.log_start_offset == 3


def test_a_segment_that_would_leave_less_than_the_size_stays() -> None:
    broker = TieredBroker()
    broker.fill(3)
    broker.wait()
    size = broker.log.segments[0].size
    broker.configure(retention_bytes=3 * size - 1)
    broker.sweep()
    assert len(broker.segments()) == 2


def test_the_log_start_rises_before_anything_is_deleted() -> None:
    broker = TieredBroker()
    broker.fill(3)
    broker.wait()
    broker.configure(retention_bytes=0)
    assert broker.world.run_until(lambda: DELETING in broker.metadata.states)
    assert broker.log.log_start_offset == 2


def test_deleted_records_leave_the_tier() -> None:
    broker = TieredBroker()
    broker.fill(4)
    broker.wait()
    broker.manager.delete_records(1_000, {WHERE.topic_partition: 2}, lambda _: None)
    broker.sweep()
    assert broker.segments(None) == [(2, 2)]


def test_deletions_that_fail_are_repeated() -> None:
    broker = TieredBroker()
    broker.fill(3)
    broker.wait()
    broker.store.faults.unavailable = 1.0
    broker.configure(retention_bytes=0)
    broker.sweep()
    assert broker.segments(DELETING) == [(0, 0), (1, 1)]
    assert broker.metrics.topics["flights"].delete_errors >= 2
    broker.store.faults.unavailable = 0.0
    broker.sweep()
    assert broker.segments(None) == []
    assert broker.stored() == []
    # The first event is not repeated.
    assert broker.metadata.states.count(DELETING) == 2


def test_an_event_that_fails_is_repeated() -> None:
    broker = TieredBroker()
    broker.fill(2)
    broker.wait()
    broker.metadata.errors.append(ErrorCode.REQUEST_TIMED_OUT)
    broker.configure(retention_bytes=0)
    broker.sweep()
    broker.sweep()
    assert broker.segments(None) == []


def test_a_deposed_leader_deletes_nothing() -> None:
    broker = TieredBroker(replicas=(1, 2))
    broker.fill(3)
    broker.follow(2, 3)
    broker.wait()
    broker.configure(retention_bytes=0)
    broker.resign()
    broker.sweep()
    assert broker.segments() == [(0, 0), (1, 1)]


def test_a_leadership_that_ends_in_the_deletion_ends_its_events() -> None:
    broker = TieredBroker(replicas=(1, 2))
    broker.fill(2)
    broker.follow(2, 2)
    broker.wait()
    broker.configure(retention_bytes=0)
    assert broker.world.run_until(lambda: DELETING in broker.metadata.states)
    broker.resign()
    broker.wait()
    assert DELETED not in broker.metadata.states


def test_a_copy_of_a_former_leader_that_never_ended_is_deleted_when_it_is_old() -> None:
    config = RemoteLogConfig(barnabas_remote_orphan_age_ms=90_000)
    broker = TieredBroker(config=config)
    broker.metadata.add(WHERE, broker.foreign_segment(0, 5, state=STARTED))
    broker.sweep()
    assert broker.segments(STARTED) == [(0, 5)]
    for _ in range(4):
        broker.sweep()
    assert broker.segments(None) == []


def test_segments_of_another_history_are_deleted() -> None:
    """After an unclean election, the log has no records of the epochs of some segments."""
    broker = TieredBroker(replicas=(1, 2))
    broker.resign()
    broker.lead()
    epoch = broker.partition.leader_epoch
    broker.metadata.add(WHERE, broker.foreign_segment(0, 5, leader_epochs=((epoch - 1, 0),)))
    broker.fill(3)
    broker.follow(2, 3)
    broker.sweep()
    broker.sweep()
    assert broker.segments(None) == [(0, 0), (1, 1)]
    assert broker.log.log_start_offset == 0


def test_segments_beyond_the_log_stay_and_count_for_nothing() -> None:
    broker = TieredBroker()
    broker.fill(3)
    broker.wait()
    size = broker.log.segments[0].size
    broker.metadata.add(WHERE, broker.foreign_segment(7, 9, size=1_000_000))
    broker.configure(retention_bytes=10 * size)
    broker.sweep()
    assert (0, 0) in broker.segments()


def test_a_new_leader_starts_where_the_tier_starts() -> None:
    """The former leader has raised the log start, and this replica has not heard of it."""
    broker = TieredBroker(replicas=(1, 2))
    broker.fill(3)
    broker.follow(2, 3)
    broker.wait()
    (first, _) = broker.remote.segments()
    # Local retention has deleted the first segment here, and the former leader in the tier.
    broker.configure(local_retention_bytes=1)
    broker.log.delete_old_segments(broker.runtime.clock.wall_ms())
    broker.resign()
    for state in (DELETING, DELETED):
        broker.metadata.publish(WHERE, broker.tier._tier.state_event(first, state), lambda _: None)
    broker.wait()
    broker.lead()
    broker.wait()
    assert broker.log.log_start_offset == 1


def test_sizes_are_counted() -> None:
    broker = TieredBroker(retention_bytes=1_000_000, local_retention_bytes=1_000)
    broker.fill(3)
    broker.wait()
    broker.sweep()
    sizes = broker.metrics.partitions[WHERE.topic_partition]
    stored = sum(each.size for each in broker.remote.segments())
    assert (sizes.metadata_count, sizes.size_bytes) == (2, stored)
    assert sizes.local_retention_percent == broker.log.size * 100 // 1_000
    assert FINISHED in broker.metadata.states


def test_the_expiration_goes_on_while_copies_are_disabled() -> None:
    broker = TieredBroker()
    broker.fill(3)
    broker.wait()
    broker.configure(remote_copy_disable=True, retention_bytes=0)
    broker.sweep()
    assert broker.segments(None) == []
