"""The leader epochs of records that only the tier has are found in the metadata of the segments."""

from __future__ import annotations

from msgspec.structs import replace

from barnabas.replication.remote.lost_epochs import find_epochs
from barnabas.storage.remote.segment_states import RemoteLog, started_record, update_record
from unit.replication.remote.tiered_broker import DELETING, FINISHED, STARTED, WHERE, TieredBroker


def remote_log(*segments: tuple[int, int, tuple[tuple[int, int], ...]], state=FINISHED):
    remote = RemoteLog(WHERE)
    broker = TieredBroker()
    for start, end, epochs in segments:
        segment = broker.foreign_segment(start, end, leader_epochs=epochs, state=STARTED)
        remote.apply(started_record(segment))
        if state is not STARTED:
            remote.apply(update_record(replace(segment, state=FINISHED)))
        if state is DELETING:
            remote.apply(update_record(replace(segment, state=DELETING)))
    return remote


def test_adjoining_segments_give_their_epochs() -> None:
    remote = remote_log(
        (0, 9, ((0, 0), (1, 5))), (10, 19, ((1, 10), (3, 15))), (20, 29, ((3, 20),))
    )
    assert find_epochs(remote, 30, 4) == [(0, 0), (1, 5), (3, 15)]


def test_a_gap_ends_the_search() -> None:
    remote = remote_log((0, 9, ((0, 0),)), (20, 29, ((3, 20),)))
    assert find_epochs(remote, 30, 4) == [(3, 20)]
    assert find_epochs(remote, 40, 4) == []


def test_a_segment_may_reach_beyond_the_local_start() -> None:
    remote = remote_log((0, 9, ((0, 0),)), (10, 39, ((1, 10),)))
    assert find_epochs(remote, 30, 1) == [(0, 0), (1, 10)]


def test_segments_of_later_epochs_belong_to_another_history() -> None:
    remote = remote_log((0, 9, ((0, 0),)), (0, 9, ((7, 0),)))
    assert find_epochs(remote, 10, 4) == [(0, 0)]
    assert find_epochs(remote, 10, None) == [(7, 0)]


def test_only_finished_copies_count() -> None:
    for state in (STARTED, DELETING):
        assert find_epochs(remote_log((0, 9, ((0, 0),)), state=state), 10, 4) == []


def test_a_leader_whose_epochs_are_lost_finds_them_before_it_deletes() -> None:
    """Without them, the segments would look like those of another history."""
    broker = TieredBroker(replicas=(1, 2), local_retention_bytes=1)
    broker.resign()
    broker.lead()
    broker.fill(2)
    broker.follow(2, 2)
    broker.resign()
    broker.lead()
    broker.fill(2)
    broker.follow(2, 4)
    broker.sweep()
    broker.log.delete_old_segments(broker.runtime.clock.wall_ms())
    before = broker.log.leader_epochs.entries
    local = broker.log.local_log_start_offset
    assert (broker.log.log_start_offset, local) == (0, 3)
    broker.log.leader_epochs.replace([before[-1]._replace(start_offset=local)])
    assert broker.log.lacks_epochs
    broker.resign()
    broker.lead()
    broker.wait()
    assert broker.log.leader_epochs.entries[: len(before)] == before
    assert broker.log.log_start_offset == 0
    assert len(broker.segments()) == 3
