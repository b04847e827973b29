"""Segments of a log's lineage, with Kafka's cases (RemoteLogManagerTest)."""

from __future__ import annotations

import pytest

from barnabas.sim.world import sim_runtime
from barnabas.storage.files.leader_epoch_cache import EpochEntry, LeaderEpochCache
from barnabas.storage.remote.lineage import (
    first_remote_offset,
    highest_remote_offset,
    is_within_lineage,
    without_empty_epochs,
)
from barnabas.storage.remote.segment_states import RemoteLog
from unit.storage.remote.epoch_segments import segment
from unit.storage.remote.remote_log_stories import WHERE, start, update

LOG = [(0, 0), (1, 10), (2, 20), (7, 80), (9, 100)]
LOG_END = 210


def entries(*pairs: tuple[int, int]) -> list[EpochEntry]:
    return [EpochEntry(*pair) for pair in pairs]


def test_epochs_with_the_start_of_the_next_one_are_empty() -> None:
    given = entries((0, 0), (1, 0), (2, 33), (3, 43), (4, 43), (5, 43), (6, 43))
    assert without_empty_epochs(given) == entries((1, 0), (2, 33), (6, 43))
    assert without_empty_epochs([]) == []
    assert without_empty_epochs(entries((4, 9))) == entries((4, 9))


WITHIN = {
    "one epoch": segment(9, (0, 0)),
    "a part of an epoch": segment(60, (2, 30)),
    "two epochs": segment(15, (0, 5), (1, 10)),
    "several epochs": segment(90, (1, 15), (2, 20), (7, 80)),
    "to the end of an epoch": segment(99, (7, 80)),
    "to the end of the log": segment(209, (9, 100)),
    "empty epochs of its own": segment(85, (2, 70), (5, 80), (7, 80)),
}


@pytest.mark.parametrize("case", WITHIN)
def test_within_the_lineage(case: str) -> None:
    assert is_within_lineage(WITHIN[case], LOG_END, entries(*LOG))


OUTSIDE = {
    "an epoch that the log does not have": segment(90, (2, 70), (5, 80)),
    "a last epoch above those of the log": segment(90, (10, 80)),
    "only epochs below those of the log": segment(5, (-1, 0)),
    "an epoch that begins earlier than in the log": segment(60, (2, 15)),
    "a following epoch that begins elsewhere": segment(90, (2, 70), (7, 81)),
    "a missing epoch in the middle": segment(90, (1, 10), (7, 80)),
    "records behind the end of its last epoch": segment(100, (7, 80)),
    "records behind the end of the log": segment(210, (9, 100)),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_outside_of_the_lineage(case: str) -> None:
    assert not is_within_lineage(OUTSIDE[case], LOG_END, entries(*LOG))


def test_a_log_without_epochs_has_no_segments() -> None:
    assert not is_within_lineage(segment(9, (0, 0)), LOG_END, [])


def test_an_overlapping_segment_stays_valid_after_the_log_forgets_epochs() -> None:
    # The log had {5: 10, 7: 15, 9: 100}. The deletion of an earlier copy of 5 to 50 raised its
    # start, and another copy has the offsets 14 to 150.
    overlapping = segment(150, (5, 14), (7, 15), (9, 100))
    assert is_within_lineage(overlapping, LOG_END, entries((7, 51), (9, 100)))
    assert not is_within_lineage(
        segment(150, (5, 14), (9, 100)), LOG_END, entries((7, 51), (9, 101))
    )


def cache(*pairs: tuple[int, int]) -> LeaderEpochCache:
    made = LeaderEpochCache(sim_runtime(1)[1].disk, "/t-0")
    for epoch, offset in pairs:
        made.announce(epoch, offset)
    return made


def remote(*segments: tuple[str, int, int, int]) -> RemoteLog:
    """Return finished segments: name, epoch, first and last offset."""
    log = RemoteLog(WHERE)
    for name, epoch, first, last in segments:
        log.apply(start(name, (first, last), [(epoch, first)]))
        log.apply(update(name, 1))
    return log


def test_nothing_was_copied() -> None:
    epochs = cache((0, 0), (1, 100))
    assert highest_remote_offset(remote(), epochs, 200) == (-1, -1)
    assert first_remote_offset(remote(), epochs) is None


def test_the_highest_offset_is_that_of_the_latest_copied_epoch() -> None:
    epochs = cache((0, 0), (1, 100), (2, 150))
    log = remote(("A", 0, 0, 99), ("B", 1, 100, 120))
    assert highest_remote_offset(log, epochs, 200) == (120, 1)


def test_the_highest_offset_ends_with_the_epoch_in_the_log() -> None:
    # Another leader of epoch 1 had copied up to 170, and the log was truncated to 150.
    log = remote(("A", 0, 0, 99), ("B", 1, 100, 170))
    assert highest_remote_offset(log, cache((0, 0), (1, 100), (2, 150)), 200) == (149, 1)
    assert highest_remote_offset(log, cache((0, 0), (1, 100)), 160) == (159, 1)


def test_epochs_that_the_log_does_not_have_do_not_count() -> None:
    log = remote(("A", 0, 0, 99), ("B", 5, 100, 170))
    assert highest_remote_offset(log, cache((0, 0), (6, 100)), 200) == (99, 0)


def test_the_first_offset_is_that_of_the_first_finished_segment() -> None:
    log = remote(("C", 1, 100, 120), ("B", 0, 50, 99))
    log.apply(start("A", (10, 49), [(0, 10)]))
    assert first_remote_offset(log, cache((0, 0), (1, 100))) == 50
    assert first_remote_offset(log, cache((1, 100))) == 100
    assert first_remote_offset(log, cache((2, 100))) is None
