"""A topic that switches its tier off loses the segments in it, and no local record (KIP-950)."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.storage.remote.config import RemoteLogConfig
from unit.replication.remote.tiered_broker import (
    DELETING,
    STARTED,
    WHERE,
    TieredBroker,
)

OFF = {"is_remote": False, "remote_delete_on_disable": True}
ON = {"is_remote": True}
ORPHAN_AGE_MS = 200_000


def broker_with_tier(**options: object) -> TieredBroker:
    """Return a broker with segments 0 to 3 in the tier, of which 2 and 3 are local too."""
    config = RemoteLogConfig(barnabas_remote_orphan_age_ms=ORPHAN_AGE_MS)
    broker = TieredBroker(config=config, **options)
    broker.fill(5)
    if len(broker.replicas) > 1:
        broker.follow(2, 5)
    broker.wait()
    assert broker.segments() == [(0, 0), (1, 1), (2, 2), (3, 3)]
    broker.configure(local_retention_bytes=3 * broker.log.segments[0].size)
    broker.log.delete_old_segments(broker.runtime.clock.wall_ms())
    broker.configure(local_retention_bytes=-2)
    assert broker.log.local_log_start_offset == 2
    return broker


def offsets(broker: TieredBroker) -> tuple[int, int, int]:
    log = broker.log
    return log.log_start_offset, log.local_log_start_offset, log.log_end_offset


def test_the_log_begins_at_the_local_start_and_the_tier_is_empty() -> None:
    broker = broker_with_tier()
    assert offsets(broker) == (0, 2, 5)
    broker.configure(**OFF)
    # At once: no read may find an offset whose segment is being deleted.
    assert offsets(broker) == (2, 2, 5)
    broker.wait()
    assert broker.segments(None) == []
    assert broker.store.names() == []
    assert broker.metadata.assigned == set()
    assert broker.metrics.partitions == {}
    assert broker.log.highest_remote_offset == broker.log.verified_remote_offset == -1


def test_nothing_is_copied_afterwards() -> None:
    broker = broker_with_tier()
    broker.configure(**OFF)
    broker.fill(3)
    broker.sweep()
    assert broker.store.names() == []


def test_without_the_permission_to_delete_the_segments_stay() -> None:
    """No controller allows this."""
    broker = broker_with_tier()
    broker.configure(is_remote=False)
    broker.sweep()
    assert broker.segments() == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert broker.metadata.assigned == set()


@pytest.mark.parametrize("state", [STARTED, DELETING])
def test_unfinished_copies_and_deletions_are_removed_too(state: object) -> None:
    broker = broker_with_tier()
    broker.metadata.add(WHERE, broker.foreign_segment(4, 4, state=state))
    broker.configure(**OFF)
    broker.wait()
    assert broker.segments(None) == []


def test_a_copy_in_progress_leaves_nothing() -> None:
    broker = TieredBroker()
    broker.fill(3)
    assert broker.world.run_until(lambda: bool(broker.metadata.states))
    broker.configure(**OFF)
    broker.sweep()
    assert broker.segments(None) == []
    assert broker.store.names() == []
    assert offsets(broker) == (0, 0, 3)


def test_deletions_that_fail_are_repeated() -> None:
    broker = broker_with_tier()
    broker.store.faults.unavailable = 1.0
    broker.configure(**OFF)
    broker.sweep()
    assert broker.store.names() != []
    broker.store.faults.unavailable = 0.0
    broker.sweep()
    assert broker.segments(None) == []
    assert broker.store.names() == []


def test_a_restart_in_the_middle_goes_on() -> None:
    broker = broker_with_tier()
    broker.store.faults.unavailable = 1.0
    broker.configure(**OFF)
    broker.wait(10)
    broker.restart()
    broker.store.faults.unavailable = 0.0
    broker.sweep()
    assert broker.store.names() == []
    assert broker.metadata.assigned == set()


def test_a_new_leader_goes_on_and_begins_at_its_own_local_start() -> None:
    broker = broker_with_tier(replicas=(1, 2))
    broker.resign()
    broker.configure(**OFF)
    broker.sweep()
    # A follower deletes nothing, and learns the log start from the leader.
    assert len(broker.segments()) == 4
    assert broker.metadata.assigned == set()
    assert offsets(broker) == (0, 2, 5)
    broker.lead()
    assert offsets(broker) == (2, 2, 5)
    broker.sweep()
    assert broker.segments(None) == []


def test_a_deposed_leader_stops() -> None:
    broker = broker_with_tier(replicas=(1, 2))
    broker.store.faults.unavailable = 1.0
    broker.configure(**OFF)
    broker.wait(10)
    broker.resign()
    broker.store.faults.unavailable = 0.0
    broker.sweep()
    assert broker.segments(None) != []
    assert broker.metadata.assigned == set()


def test_a_removed_tier_is_searched_once_in_a_leadership() -> None:
    broker = broker_with_tier()
    broker.configure(**OFF)
    broker.wait()
    broker.metadata.add(WHERE, broker.foreign_segment(0, 1))
    # The registration changes, and the leader epoch does not.
    broker.change(isr=[1])
    broker.sweep()
    assert len(broker.segments()) == 1
    assert broker.metadata.assigned == set()


def test_a_reader_of_removed_offsets_learns_that_they_are_gone() -> None:
    broker = broker_with_tier()
    broker.configure(**OFF)
    broker.fetch(-1, 0)
    assert broker.answers.fetched[-1][0][1].error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_topic_that_gets_its_tier_again_is_copied_from_its_local_start() -> None:
    broker = broker_with_tier()
    broker.configure(**OFF)
    broker.wait()
    broker.configure(**ON)
    broker.sweep()
    assert broker.segments(None) == [(2, 2), (3, 3)]
    assert broker.stored() == [2, 3]
    assert offsets(broker) == (2, 2, 5)
    broker.wait(2 * ORPHAN_AGE_MS)
    broker.sweep()
    # Local retention may delete them.
    assert broker.log.offsets.copied_end_offset == 4


def test_a_tier_that_comes_back_in_the_middle_of_its_removal_loses_nothing() -> None:
    broker = broker_with_tier()
    broker.metadata.delay_ms = 100.0
    broker.configure(**OFF)
    broker.wait(50)
    broker.configure(**ON)
    for _ in range(20):
        broker.sweep()
    # The log starts at 2. What is below is deleted, and the others have one copy each.
    assert broker.segments(None) == [(2, 2), (3, 3)]
    assert broker.stored() == [2, 3]
    assert broker.log.offsets.copied_end_offset == 4


def test_copies_of_the_former_tier_do_not_count_for_a_while() -> None:
    """A late deletion of the former tier may still come. Then only the local log has a record."""
    broker = broker_with_tier()
    broker.metadata.is_ready = False
    broker.configure(**OFF)
    broker.configure(**ON)
    broker.metadata.become_ready()
    broker.sweep()
    assert broker.segments() == [(2, 2), (3, 3)]
    assert broker.log.highest_remote_offset == 3
    assert broker.log.verified_remote_offset == -1
    broker.wait(ORPHAN_AGE_MS)
    broker.sweep()
    assert broker.log.verified_remote_offset == 3


def test_a_first_tier_counts_at_once() -> None:
    broker = TieredBroker(is_remote=False)
    broker.fill(4)
    broker.configure(**ON)
    broker.wait()
    assert broker.log.verified_remote_offset == 2


def test_without_verification_the_events_of_existing_copies_count() -> None:
    config = RemoteLogConfig(barnabas_remote_verify_before_delete=False)
    broker = TieredBroker(config=config)
    broker.fill(4)
    broker.wait()
    assert broker.log.verified_remote_offset == 2
    broker.configure(**OFF)
    broker.wait()
    broker.store.faults.unavailable = 1.0
    broker.configure(**ON)
    broker.sweep()
    # The highest copied offset never falls, but the copies are gone.
    assert broker.log.highest_remote_offset == 2
    assert broker.log.verified_remote_offset == -1


def test_a_topic_that_is_deleted_in_the_middle_leaves_nothing() -> None:
    broker = broker_with_tier()
    broker.store.faults.unavailable = 1.0
    broker.configure(**OFF)
    broker.wait(10)
    broker.remove_topic()
    broker.store.faults.unavailable = 0.0
    broker.sweep()
    assert broker.store.names() == []
    assert broker.metadata.assigned == set()


def test_a_removal_that_the_configs_had_forgotten_goes_on_when_they_name_it_again() -> None:
    broker = broker_with_tier()
    broker.configure(is_remote=False)
    broker.configure(remote_delete_on_disable=True)
    broker.wait()
    assert broker.store.names() == []
