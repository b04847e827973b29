"""Local segments are deleted when the remote tier was seen to have them, and not before."""

from __future__ import annotations

from barnabas.storage.remote.config import RemoteLogConfig
from barnabas.storage.remote.segment_objects import LOG_SUFFIX, segment_name
from unit.replication.remote.tiered_broker import TieredBroker


def delete_locally(broker: TieredBroker) -> int:
    return broker.log.delete_old_segments(broker.runtime.clock.wall_ms())


def test_local_retention_deletes_what_was_copied_and_checked() -> None:
    broker = TieredBroker(local_retention_bytes=1)
    broker.fill(4)
    broker.wait()
    assert broker.log.verified_remote_offset == 2
    assert delete_locally(broker) == 3
    assert (broker.log.log_start_offset, broker.log.local_log_start_offset) == (0, 3)


def test_local_retention_keeps_what_the_store_only_claims_to_have() -> None:
    broker = TieredBroker(local_retention_bytes=1)
    broker.store.faults.lie = 1.0
    broker.fill(2)
    broker.wait(1_000)
    assert delete_locally(broker) == 0
    # The segment is copied again as soon as the store works.
    broker.store.faults.lie = 0.0
    for _ in range(3):
        broker.sweep()
    assert broker.segments() == [(0, 0)]
    assert broker.stored() == [0]
    assert delete_locally(broker) == 1


def test_a_segment_that_was_missing_for_a_moment_is_not_lost() -> None:
    broker = TieredBroker(local_retention_bytes=1)
    broker.fill(2)
    assert broker.world.run_until(lambda: broker.segments() == [(0, 0)])
    (segment,) = broker.remote.segments()
    broker.log.offsets.verified_remote_offset = -1
    path = f"{broker.store.objects.root}/{segment_name(segment)}{LOG_SUFFIX}"
    content = broker.store.disk.read(path)
    broker.store.lose(segment)
    broker.sweep()
    assert broker.log.verified_remote_offset == -1
    broker.store.disk.write_atomically(path, content)
    broker.sweep()
    assert broker.log.verified_remote_offset == 0
    assert [each.id for each in broker.remote.segments()] == [segment.id]


def test_a_segment_that_is_being_deleted_does_not_count_as_verified() -> None:
    """Otherwise local retention would delete the last records before the segment is gone."""
    broker = TieredBroker(local_retention_bytes=1)
    broker.fill(2)
    assert broker.world.run_until(lambda: broker.segments() == [(0, 0)])
    (segment,) = broker.remote.segments()
    broker.log.offsets.verified_remote_offset = -1
    # The deletion waits for its first event.
    broker.tier.deletions._ids.add(segment.id)
    broker.sweep()
    assert broker.log.verified_remote_offset == -1
    assert delete_locally(broker) == 0
    broker.tier.deletions._ids.discard(segment.id)
    broker.sweep()
    assert broker.log.verified_remote_offset == 0


def test_a_check_that_fails_is_repeated() -> None:
    broker = TieredBroker(local_retention_bytes=1)
    broker.fill(2)
    assert broker.world.run_until(lambda: broker.segments() == [(0, 0)])
    broker.store.faults.unavailable = 1.0
    broker.wait(1_000)
    assert broker.log.verified_remote_offset == -1
    broker.store.faults.unavailable = 0.0
    broker.sweep()
    assert broker.log.verified_remote_offset == 0


def test_the_event_alone_counts_without_checks() -> None:
    config = RemoteLogConfig(barnabas_remote_verify_before_delete=False)
    broker = TieredBroker(config=config, local_retention_bytes=1)
    broker.store.faults.lie = 1.0
    broker.fill(2)
    broker.wait()
    assert delete_locally(broker) == 1


def test_a_follower_deletes_what_its_leader_has_copied() -> None:
    broker = TieredBroker(replicas=(1, 2), local_retention_bytes=1)
    broker.fill(3)
    broker.follow(2, 3)
    broker.wait()
    broker.resign()
    broker.restart()
    broker.log.offsets.highest_remote_offset = broker.log.offsets.verified_remote_offset = -1
    assert delete_locally(broker) == 0
    broker.sweep()
    broker.sweep()
    assert delete_locally(broker) == 2


def test_a_lost_copy_of_records_that_are_not_local_is_reported(caplog) -> None:
    broker = TieredBroker(local_retention_bytes=1)
    broker.fill(2)
    broker.wait()
    assert delete_locally(broker) == 1
    # After a restart, the local log begins in the middle of a remote segment of another leader.
    segment = broker.remote.segments()[0]
    broker.tier._on_lost(broker.tier._replicas[broker.partition.topic_partition], segment)
    assert "Records are lost" in caplog.text
    assert broker.segments() == [(0, 0)]
