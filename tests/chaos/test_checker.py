"""The checker finds each kind of fault, and nothing in a correct history."""

from __future__ import annotations

import random
from array import array

import pytest

from chaos.checker import KINDS, check
from chaos.history import Commit, History, PartitionLog, Run, Sends, code_in, code_of, value_of

RECORDS = 20
PRODUCERS = 2


def history_without_fault() -> History:
    """Two producers by turns on partition 0, a reader, a group of two members, commits."""
    history = History(logs={0: PartitionLog(0)})
    history.sends = [Sends(producer, 0) for producer in range(PRODUCERS)]
    first, second = Run("a", 0), Run("b", 0)
    alone = Run("alone", 0)
    for offset in range(RECORDS * PRODUCERS):
        sends = history.sends[offset % PRODUCERS]
        number = sends.next_number()
        sends.acknowledge(number, offset, float(offset))
        code = code_of(sends.producer, number)
        for run in (history.logs[0], alone, first if offset < RECORDS else second):
            run.add(offset, code)
    history.runs = [alone]
    history.member_runs = [first, second]
    history.commits = [
        Commit(0, 10, 1.0, 2.0),
        Commit(0, RECORDS, 3.0, 4.0),
        Commit(0, RECORDS, 4.5, 4.6, was_found=True),
        Commit(0, RECORDS * PRODUCERS, 5.0, 6.0),
    ]
    return history


def kinds(history: History) -> set[str]:
    return set(check(history).counts)


def drop(log: PartitionLog | Run, place: int) -> None:
    del log.offsets[place], log.codes[place]


def test_nothing_is_found_in_a_history_without_fault() -> None:
    verdict = check(history_without_fault())
    assert verdict.is_clean, verdict
    assert str(verdict) == "no faults"


def copy_last_record_of_first_producer(history: History) -> int:
    """Add that record a second time, as a retry after a lost response does."""
    sends = history.sends[0]
    offset = RECORDS * PRODUCERS
    sends.acknowledge(sends.sent - 1, offset, 0.0)
    history.logs[0].add(offset, code_of(sends.producer, sends.sent - 1))
    for run in (history.runs[0], history.member_runs[1]):
        run.add(offset, code_of(sends.producer, sends.sent - 1))
    return offset


@pytest.mark.parametrize("fault", ["", "the same epoch", "another client", "no files"])
def test_a_duplicate_under_a_new_producer_epoch_is_attributed_to_the_client(fault: str) -> None:
    history = history_without_fault()
    copy = copy_last_record_of_first_producer(history)
    history.sends[0].may_start_new_epochs = fault != "another client"
    if fault != "no files":
        history.logs[0].producer_epochs = dict.fromkeys(range(copy), 0)
        history.logs[0].producer_epochs[copy] = 0 if fault == "the same epoch" else 1
    verdict = check(history)
    if fault:
        assert set(verdict.counts) == {"duplicated", "misplaced"}
    else:
        assert verdict.is_clean, verdict
        assert verdict.sent_again == 1
        assert "1 records that librdkafka" in str(verdict)


def test_a_missing_acknowledged_record_at_the_end_is_lost() -> None:
    history = history_without_fault()
    drop(history.logs[0], -1)
    found = check(history)
    # Readers had it, and the group's offset lies behind the end.
    assert set(found.counts) == {"lost", "vanished", "went back"}
    assert "lost: partition 0: record 19 of producer 1, acknowledged at 39" in str(found)


def test_a_gap_in_the_log_is_reported_and_its_records_are_lost() -> None:
    history = history_without_fault()
    drop(history.logs[0], 7)
    assert {"lost", "gap"} <= kinds(history)


def test_an_expired_unacknowledged_record_may_be_missing() -> None:
    history = history_without_fault()
    sends = history.sends[0]
    number = sends.next_number()
    assert kinds(history) == {"unsettled"}
    sends.failed[number] = "timed out"
    assert kinds(history) == set()
    history.logs[0].add(RECORDS * PRODUCERS, code_of(0, number))
    assert kinds(history) == set()


def test_a_duplicate_record_is_found() -> None:
    history = history_without_fault()
    history.logs[0].add(RECORDS * PRODUCERS, code_of(1, RECORDS - 1))
    assert kinds(history) == {"duplicated"}


def test_records_in_another_order_are_found() -> None:
    history = history_without_fault()
    codes = history.logs[0].codes
    codes[4], codes[6] = codes[6], codes[4]
    assert {"reordered", "misplaced", "two values"} == kinds(history)


def test_reordering_is_found_without_acknowledgements() -> None:
    history = history_without_fault()
    history.runs, history.member_runs, history.commits = [], [], []
    codes = history.logs[0].codes
    codes[4], codes[6] = codes[6], codes[4]
    sends = history.sends[0]
    for number in range(sends.sent):
        sends.offsets[number] = -1
        sends.failed[number] = "timed out"
    assert kinds(history) == {"reordered"}


@pytest.mark.parametrize("code", [code_of(0, 1000), code_of(9, 0), -1])
def test_a_record_that_was_never_sent_is_a_phantom(code: int) -> None:
    history = history_without_fault()
    history.logs[0].add(RECORDS * PRODUCERS, code)
    assert kinds(history) == {"phantom"}


def test_an_acknowledgement_with_another_offset_is_found() -> None:
    history = history_without_fault()
    sends = history.sends[0]
    sends.offsets[3] = RECORDS * PRODUCERS + 5
    assert kinds(history) == {"misplaced"}


def test_an_acknowledgement_without_an_offset_requires_the_record() -> None:
    history = history_without_fault()
    history.sends[0].acknowledge(3, -1001, 0.0)
    assert kinds(history) == set()
    number = history.sends[0].next_number()
    history.sends[0].acknowledge(number, -1, 0.0)
    assert kinds(history) == {"lost"}


def test_an_offset_acknowledged_for_two_records_is_found() -> None:
    history = history_without_fault()
    history.sends[0].offsets[3] = history.sends[1].offsets[3]
    assert kinds(history) == {"misplaced", "two values"}


def test_an_offset_with_different_records_for_two_readers_is_found() -> None:
    history = history_without_fault()
    history.runs[0].codes[5] = code_of(0, RECORDS - 1)
    assert kinds(history) == {"two values"}


def test_a_duplicate_offset_of_the_log_is_found() -> None:
    history = history_without_fault()
    history.logs[0].offsets[5] = 4
    assert "two values" in kinds(history)


def test_a_record_that_was_read_and_is_in_no_log_has_vanished() -> None:
    history = history_without_fault()
    history.runs[0].add(RECORDS * PRODUCERS, code_of(0, RECORDS))
    assert kinds(history) == {"vanished"}


def test_a_repeated_offset_of_a_reader_is_found() -> None:
    history = history_without_fault()
    history.runs[0].add(3, code_of(1, 1))
    assert kinds(history) == {"read twice"}


def test_a_member_may_read_an_offset_again_after_a_seek() -> None:
    history = history_without_fault()
    again = Run("b", 0)
    again.add(3, code_of(1, 1))
    history.member_runs.append(again)
    assert kinds(history) == set()


def test_a_record_skipped_by_a_reader_is_found() -> None:
    history = history_without_fault()
    drop(history.runs[0], 5)
    assert kinds(history) == {"skipped"}


def test_a_committed_record_that_no_member_read_is_found() -> None:
    history = history_without_fault()
    drop(history.member_runs[1], 0)
    assert kinds(history) == {"unread"}


def test_a_committed_offset_that_goes_back_is_found() -> None:
    history = history_without_fault()
    history.commits.append(Commit(0, RECORDS, 6.5, 7.0, was_found=True))
    assert kinds(history) == {"went back"}
    history = history_without_fault()
    history.commits.append(Commit(0, RECORDS, 6.5, 7.0))
    assert kinds(history) == {"went back"}


def test_commits_that_overlap_have_no_order() -> None:
    history = history_without_fault()
    history.commits.append(Commit(0, RECORDS, 5.5, 7.0, was_found=True))
    assert kinds(history) == set()


def test_a_committed_offset_behind_the_end_is_found() -> None:
    history = history_without_fault()
    history.commits.append(Commit(0, RECORDS * PRODUCERS + 1, 7.0, 8.0))
    assert kinds(history) == {"went back"}


def test_records_deleted_by_retention_are_not_lost() -> None:
    history = history_without_fault()
    history.commits = []
    for _ in range(5):
        drop(history.logs[0], 0)
    assert {"gap", "lost", "vanished"} <= kinds(history)
    history.logs[0].start_offset = 5
    assert kinds(history) == set()


def test_all_faults_are_counted_and_some_are_reported() -> None:
    history = history_without_fault()
    history.commits = []
    history.runs, history.member_runs = [], []
    history.logs[0].offsets = array("q", history.logs[0].offsets[:1])
    history.logs[0].codes = array("q", history.logs[0].codes[:1])
    found = check(history)
    assert found.counts["lost"] == RECORDS * PRODUCERS - 1
    assert str(found).count("acknowledged at") == 10


def test_a_value_identifies_its_record() -> None:
    assert code_in(value_of(3, 12, b"a:b")) == code_of(3, 12)
    assert code_in(b"something else") == -1
    assert code_in(None) == -1


def test_random_damage_of_the_log_is_always_found() -> None:
    rng = random.Random(5)
    for _ in range(200):
        history = history_without_fault()
        log = history.logs[0]
        place = rng.randrange(len(log.codes))
        damage = rng.choice(["drop", "repeat", "swap", "replace"])
        if damage == "drop":
            drop(log, place)
        elif damage == "repeat":
            log.add(log.offsets[-1] + 1, log.codes[place])
        elif damage == "swap":
            other = (place + 1) % len(log.codes)
            log.codes[place], log.codes[other] = log.codes[other], log.codes[place]
        else:
            log.codes[place] = code_of(7, 7)
        found = check(history)
        assert not found.is_clean, (damage, place)
        assert set(found.counts) <= set(KINDS)
