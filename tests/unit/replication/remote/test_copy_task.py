"""Leaders copy closed segments to the remote tier, once each, and only while they lead."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.remote.copy_causes import CopyCause
from barnabas.replication.remote.copy_task import TABLE, CopyEvent, CopyState
from barnabas.replication.remote.store_health import PAUSE_MS
from barnabas.storage.remote.config import RemoteLogConfig
from unit.replication.remote.tiered_broker import (
    DELETING,
    FINISHED,
    PARTITION,
    STARTED,
    WHERE,
    TieredBroker,
)


def task_of(broker: TieredBroker):
    return broker.tier._replicas[PARTITION].copies


def test_every_state_but_the_last_ends_with_the_leadership() -> None:
    for state, events in TABLE.items():
        is_end = state is CopyState.ABANDONED
        assert events.get(CopyEvent.RESIGNED) is (None if is_end else CopyState.ABANDONED), state


def test_closed_segments_are_copied_in_order_and_the_active_one_is_not() -> None:
    broker = TieredBroker()
    broker.fill(4)
    broker.wait()
    assert broker.segments() == [(0, 0), (1, 1), (2, 2)]
    assert broker.stored() == [0, 1, 2]
    assert broker.log.highest_remote_offset == 2
    assert broker.metadata.states == [STARTED, FINISHED] * 3


def test_a_copy_has_what_its_event_says() -> None:
    broker = TieredBroker()
    broker.fill(2, timestamp=5_000)
    broker.wait()
    (segment,) = broker.remote.segments()
    assert (segment.start_offset, segment.end_offset, segment.max_timestamp) == (0, 0, 5_000)
    assert segment.leader_epochs == ((0, 0),)
    assert not segment.has_transactions
    storage = broker.store.on(broker.runtime.disk)
    local = broker.log.segments[0]
    assert storage.size_of(segment) == segment.size == local.size
    assert bytes(storage.read(segment, 0, segment.size)) == broker.runtime.disk.read(
        local.path(".log")
    )


def test_nothing_is_copied_before_the_earlier_events_are_known() -> None:
    broker = TieredBroker()
    broker.metadata.is_ready = False
    broker.restart()
    broker.fill(2)
    broker.wait()
    assert broker.segments(None) == []
    broker.metadata.become_ready()
    broker.wait()
    assert broker.segments() == [(0, 0)]


def test_a_segment_is_copied_when_its_records_are_committed() -> None:
    broker = TieredBroker(replicas=(1, 2))
    broker.fill(3)
    broker.wait()
    assert broker.segments(None) == []
    broker.follow(2, 1)
    broker.wait()
    assert broker.segments() == [(0, 0)]
    broker.follow(2, 3)
    broker.wait()
    assert broker.segments() == [(0, 0), (1, 1)]


def test_a_new_leader_continues_behind_the_last_copy() -> None:
    broker = TieredBroker(replicas=(1, 2))
    broker.fill(3)
    broker.follow(2, 3)
    broker.wait()
    broker.resign()
    broker.lead()
    broker.fill(2)
    broker.follow(2, 5)
    broker.wait()
    assert broker.segments() == [(0, 0), (1, 1), (2, 2), (3, 3)]
    # Records 3 and 4 have the epoch of the second leadership.
    assert broker.remote.segments()[-1].leader_epochs == ((broker.partition.leader_epoch, 3),)


def test_what_a_former_leader_has_not_copied_is_copied() -> None:
    """It may have dropped a copy that the store had lost, and ended then."""
    broker = TieredBroker()
    broker.metadata.is_ready = False
    broker.fill(5)
    broker.wait()
    broker.metadata.add(WHERE, broker.foreign_segment(2, 2))
    broker.metadata.become_ready()
    broker.sweep()
    assert broker.segments()[:2] == [(0, 0), (1, 1)]
    # The store has no segment at 2 either: it is lost, and copied by the next sweep.
    broker.sweep()
    assert broker.segments() == [(0, 0), (1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize(
    ("lag", "is_copied"),
    [
        ({"remote_copy_lag_ms": 3_600_000, "remote_copy_lag_bytes": -1}, False),
        ({"remote_copy_lag_ms": -1, "remote_copy_lag_bytes": 1_000_000}, False),
        ({"remote_copy_lag_ms": 3_600_000, "remote_copy_lag_bytes": 1}, True),
        ({"remote_copy_lag_ms": 0, "remote_copy_lag_bytes": 1_000_000}, True),
    ],
)
def test_the_copy_lag_delays_copies(lag: dict[str, int], is_copied: bool) -> None:
    broker = TieredBroker(**lag)
    broker.fill(2)
    broker.wait()
    assert bool(broker.segments()) is is_copied


def test_the_sweep_copies_what_has_become_old_enough() -> None:
    broker = TieredBroker(remote_copy_lag_ms=20_000, remote_copy_lag_bytes=-1)
    broker.fill(2)
    broker.wait()
    assert broker.segments() == []
    broker.sweep()
    assert broker.segments() == [(0, 0)]


def test_copies_stay_below_their_rate() -> None:
    """The rate is measured over 11 s, and a copy counts its whole segment when it starts."""
    broker = TieredBroker(copy_bytes_per_second=50)
    broker.fill(6)
    broker.wait(5_000)
    early = len(broker.segments())
    assert 1 <= early < 5
    assert broker.tier.slots.quota.throttle_times().largest == 1_000
    broker.wait(60_000)
    assert len(broker.segments()) == 5


def test_a_failed_copy_is_repeated_and_leaves_no_garbage() -> None:
    broker = TieredBroker()
    broker.store.faults.torn_copy = 1.0
    broker.fill(2)
    broker.wait(1_000)
    assert broker.segments() == []
    broker.sweep()
    (waiting,) = broker.tier.waiting_segments()
    assert (waiting.base_offset, waiting.cause) == (0, CopyCause.UNAVAILABLE)
    assert broker.metrics.topics["flights"].copy_errors >= 1
    broker.store.faults.torn_copy = 0.0
    broker.wait(60_000)
    assert broker.segments() == [(0, 0)]
    assert broker.segments(None) == [(0, 0)]
    assert len(broker.store.names()) == 3
    assert list(broker.tier.waiting_segments()) == []


@pytest.mark.parametrize("fault", ["is_refusing", "is_full"])
def test_all_copies_pause_while_the_store_would_fail_each(fault: str) -> None:
    broker = TieredBroker()
    setattr(broker.store.faults, fault, True)
    broker.fill(2)
    broker.wait(1_000)
    tries = broker.metrics.topics["flights"].copy_requests
    assert tries >= 1
    cause = {"is_refusing": CopyCause.REFUSED, "is_full": CopyCause.FULL}[fault]
    assert broker.tier.slots.pause is cause
    broker.wait(PAUSE_MS / 2)
    assert broker.metrics.topics["flights"].copy_requests == tries
    setattr(broker.store.faults, fault, False)
    broker.wait(PAUSE_MS * 2)
    assert broker.segments() == [(0, 0)]
    assert broker.tier.slots.pause is None


def test_too_much_metadata_ends_the_copies_of_the_leadership() -> None:
    config = RemoteLogConfig(remote_log_metadata_custom_metadata_max_bytes=3)
    broker = TieredBroker(replicas=(1, 2), config=config)
    broker.fill(3)
    broker.follow(2, 3)
    broker.sweep()
    assert broker.segments(None) == []
    assert broker.stored() == []
    assert [each.cause for each in broker.tier.waiting_segments()] == [CopyCause.METADATA_TOO_LARGE]
    requests = broker.metrics.topics["flights"].copy_requests
    assert requests == 1
    broker.resign()
    broker.lead()
    broker.wait()
    assert broker.metrics.topics["flights"].copy_requests == 2


def test_the_first_event_is_repeated_with_the_same_id() -> None:
    """The event may have been written although its publisher got an error."""
    broker = TieredBroker()
    broker.metadata.errors.append(ErrorCode.REQUEST_TIMED_OUT)
    broker.metadata.applies_failed = True
    broker.fill(2)
    broker.wait(10_000)
    assert broker.segments(None) == [(0, 0)]
    assert broker.metadata.states == [STARTED, STARTED, FINISHED]


@pytest.mark.parametrize("applies_failed", [False, True])
def test_the_second_event_is_repeated_without_another_copy(applies_failed: bool) -> None:
    broker = TieredBroker()
    broker.metadata.applies_failed = applies_failed
    broker.fill(2)
    # The first event is on its way.
    assert broker.world.run_until(lambda: STARTED in broker.metadata.states)
    broker.metadata.errors.append(ErrorCode.REQUEST_TIMED_OUT)
    broker.wait(10_000)
    assert broker.segments() == [(0, 0)]
    assert broker.store.calls["copy_segment"] == 1


def test_a_copy_that_ends_after_the_leadership_is_removed_and_not_finished() -> None:
    broker = TieredBroker(replicas=(1, 2))
    broker.fill(2)
    broker.follow(2, 2)
    assert broker.world.run_until(lambda: STARTED in broker.metadata.states)
    broker.resign()
    broker.wait()
    assert broker.metadata.states == [STARTED]
    assert broker.stored() == []


def test_a_leadership_that_is_lost_before_the_first_event_is_read_copies_nothing() -> None:
    broker = TieredBroker(replicas=(1, 2))
    broker.metadata.delay_ms = 1_000
    broker.fill(2)
    broker.follow(2, 2)
    broker.wait(100)
    broker.resign()
    broker.wait(5_000)
    assert broker.store.calls["copy_segment"] == 0


def test_a_copy_that_another_leader_has_deleted_first_is_removed() -> None:
    """The deletion of the new leader comes before the second event of the deposed one."""
    broker = TieredBroker()
    broker.fill(2)
    assert broker.world.run_until(lambda: STARTED in broker.metadata.states)
    (segment,) = broker.remote.segments()
    broker.metadata.publish(WHERE, broker.tier._tier.state_event(segment, DELETING), lambda _: None)
    broker.wait(500)
    # The segment is copied again, with another id.
    assert broker.metadata.states[:3] == [STARTED, DELETING, FINISHED]
    broker.wait(10_000)
    (again,) = [each for each in broker.remote.segments() if each.state is FINISHED]
    assert again.id != segment.id
    names = [name for name in broker.store.names() if name.endswith(".log")]
    assert len(names) == 1


def test_copies_stop_while_they_are_disabled() -> None:
    broker = TieredBroker()
    broker.fill(2)
    broker.wait()
    broker.configure(remote_copy_disable=True)
    broker.fill(2)
    broker.sweep()
    assert broker.segments() == [(0, 0)]
    assert list(broker.tier.waiting_segments()) == []
    broker.configure(remote_copy_disable=False)
    broker.wait()
    assert broker.segments() == [(0, 0), (1, 1), (2, 2)]


def test_a_topic_is_tiered_while_it_has_data() -> None:
    broker = TieredBroker(is_remote=False)
    broker.fill(3)
    broker.sweep()
    assert broker.segments(None) == []
    assert WHERE not in broker.metadata.assigned
    broker.configure(is_remote=True)
    broker.wait()
    assert broker.segments() == [(0, 0), (1, 1)]


def test_the_lag_is_what_is_closed_and_not_copied() -> None:
    broker = TieredBroker()
    broker.store.faults.unavailable = 1.0
    broker.fill(3)
    broker.sweep()
    sizes = broker.metrics.partitions[PARTITION]
    assert sizes.copy_lag_segments == 2
    assert sizes.copy_lag_bytes == sum(each.size for each in list(broker.log.segments)[:2])
    broker.store.faults.unavailable = 0.0
    broker.wait(60_000)
    broker.sweep()
    assert (sizes.copy_lag_segments, sizes.copy_lag_bytes) == (0, 0)
