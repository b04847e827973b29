"""The state of a follower that the leader derives from its fetches."""

from __future__ import annotations

from barnabas.replication.partition.replica import Replica
from barnabas.storage.results import LogOffsetMetadata

LAG_MS = 30_000


def fetched(replica: Replica, offset: int, now_ms: float, leader_end: int) -> Replica:
    replica.update(LogOffsetMetadata(offset, 0, 0), 0, now_ms, leader_end, 7)
    return replica


def test_a_follower_is_not_caught_up_before_its_first_fetch() -> None:
    assert not Replica(2).is_caught_up(5, 1.0, LAG_MS)


def test_a_fetch_at_the_log_end_sets_the_caught_up_time() -> None:
    assert fetched(Replica(2), 10, 500, 10).last_caught_up_ms == 500


def test_a_fetch_at_the_previous_log_end_sets_the_time_of_the_previous_fetch() -> None:
    replica = fetched(Replica(2), 4, 500, 10)
    assert replica.last_caught_up_ms < 0
    fetched(replica, 10, 900, 20)
    assert replica.last_caught_up_ms == 500


def test_a_fetch_below_the_previous_log_end_keeps_the_caught_up_time() -> None:
    """A follower that fetches constantly, but less than is written, leaves the ISR."""
    replica = Replica(2)
    for step in range(1, 100):
        fetched(replica, 4 * step, 100.0 * step, 10 * step)
    assert replica.last_caught_up_ms == float("-inf")
    assert not replica.is_caught_up(1_000, 10_000, LAG_MS)


def test_a_lagging_follower_keeps_its_caught_up_time() -> None:
    replica = fetched(Replica(2), 10, 500, 10)
    fetched(replica, 11, 900, 30)
    assert replica.last_caught_up_ms == 500
    assert replica.is_caught_up(30, 500 + LAG_MS, LAG_MS)
    assert not replica.is_caught_up(30, 501 + LAG_MS, LAG_MS)


def test_the_log_end_at_the_last_fetch_never_decreases() -> None:
    replica = fetched(Replica(2), 4, 500, 10)
    fetched(replica, 4, 600, 8)
    assert replica.last_fetch_leader_log_end_offset == 10


def test_a_new_leader_resets_the_follower_state() -> None:
    replica = fetched(Replica(2), 10, 500, 10)
    replica.reset(700, 10, is_new_leader=True, in_isr=True)
    assert replica.log_end_offset == -1
    assert replica.broker_epoch is None
    assert replica.last_caught_up_ms == 700


def test_a_new_epoch_of_the_same_leader_keeps_the_follower_state() -> None:
    replica = fetched(Replica(2), 10, 500, 10)
    replica.reset(700, 12, is_new_leader=False, in_isr=False)
    assert replica.log_end_offset == 10
    assert replica.last_fetch_leader_log_end_offset == 12
    assert not replica.is_caught_up(12, 701, LAG_MS)
