"""The offset to which a follower truncates its log (KIP-101, KIP-279)."""

from __future__ import annotations

from barnabas.replication.fetcher.local_replicas import OffsetTruncation, truncation_offset
from barnabas.replication.partition.results import EpochEndOffset
from unit.storage.storage_fixtures import Bench, batch

FETCH_OFFSET = 3


def cut(epochs: list[tuple[int, int]], end: int, leader_end: tuple[int, int]) -> OffsetTruncation:
    """Args:
    epochs: of the follower, with the offsets at which they begin; one record each.
    end: of the follower's log.
    leader_end: epoch and end offset that the leader answers.
    """
    bench = Bench()
    for offset in range(end):
        epoch = max(each for each, start in epochs if start <= offset)
        bench.append(batch([b"v"]), epoch=epoch)
    return truncation_offset(bench.log, EpochEndOffset(*leader_end), FETCH_OFFSET)


def test_an_epoch_that_ends_earlier_at_the_leader_is_truncated_there() -> None:
    assert cut([(1, 0)], 8, (1, 5)) == (5, True)


def test_an_epoch_that_ends_earlier_at_the_follower_is_truncated_there() -> None:
    """The follower's records of later epochs are not in the leader's log."""
    assert cut([(1, 0), (2, 5)], 8, (1, 10)) == (5, True)


def test_the_truncation_offset_never_exceeds_the_log_end() -> None:
    assert cut([(1, 0)], 8, (1, 10)) == (8, True)


def test_an_epoch_unknown_to_the_follower_causes_another_request() -> None:
    assert cut([(1, 0), (3, 5)], 8, (2, 7)) == (5, False)


def test_a_leader_without_the_epoch_is_fetched_from_the_initial_offset() -> None:
    assert cut([(1, 0)], 8, (-1, -1)) == (FETCH_OFFSET, True)


def test_a_log_that_begins_with_a_later_epoch_is_emptied() -> None:
    bench = Bench()
    bench.log.truncate_fully_and_start_at(4)
    for _ in range(4):
        bench.append(batch([b"v"]), epoch=5)
    assert truncation_offset(bench.log, EpochEndOffset(3, 6), FETCH_OFFSET) == (4, True)
