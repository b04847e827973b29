"""The checker of rebalance storms finds each kind of fault, and nothing where there is none."""

from __future__ import annotations

from storms.checker import check
from storms.history import Event, parse


def assigned(at: int, member: str, generation: int = 1) -> Event:
    return Event(at, member, "assigned", 0, generation=generation)


def processed(at: int, member: str, first: int, end: int, generation: int = 1) -> Event:
    return Event(at, member, "processed", 0, first, end, generation)


def committed(at: int, member: str, offset: int, began: int | None = None) -> Event:
    return Event(
        at, member, "committed", 0, end=offset, began_ns=at - 1 if began is None else began
    )


def problems(*events: Event, end: int = 10, seen: tuple[int, ...] = ()) -> list[str]:
    return check(sorted(events), {0: end}, {0: seen}).problems


GOOD = (
    assigned(0, "a"),
    processed(10, "a", 0, 4),
    committed(20, "a", 4),
    processed(30, "a", 4, 6),
    assigned(40, "b", 2),
    processed(50, "b", 4, 10, 2),
    committed(60, "b", 10),
)


def test_a_correct_history_has_no_problem_and_counts_reprocessed_records() -> None:
    verdict = check(GOOD, {0: 10}, {0: (0, 4, 4, 10)})
    assert verdict.problems == []
    assert (verdict.processed, verdict.again, verdict.commits) == (12, 2, 2)
    assert (verdict.generations, verdict.of_no_generation) == (2, 0)


def test_records_that_nobody_processed_are_found_in_the_middle_and_at_the_end() -> None:
    found = problems(processed(1, "a", 0, 3), processed(2, "b", 5, 8, 2))
    assert found == [
        "unprocessed: partition 0: 3 to 4",
        "unprocessed: partition 0: 8 to 9, the last ones",
    ]


def test_records_that_were_never_written_are_found() -> None:
    assert problems(processed(1, "a", 0, 12)) == [
        "unprocessed: partition 0: processed to 12, beyond its end 10"
    ]


def test_two_owners_in_one_generation_are_found() -> None:
    found = problems(processed(1, "a", 0, 5), processed(2, "b", 5, 10))
    assert found == ["shared: partition 0 in generation 1: a, b"]


def test_owners_without_a_known_generation_are_only_counted() -> None:
    events = [processed(1, "a", 0, 5, -1), processed(2, "b", 5, 10, -1)]
    verdict = check(events, {0: 10}, {})
    assert verdict.problems == []
    assert verdict.of_no_generation == 10


def test_a_new_owner_that_begins_before_the_committed_offset_is_found() -> None:
    found = problems(*GOOD, assigned(70, "c", 3), processed(80, "c", 9, 10, 3))
    assert found == [
        "repeated: partition 0: c processes 9, though 10 was committed when it got the partition"
    ]


def test_a_commit_acknowledged_after_the_assignment_is_not_checked() -> None:
    events = (
        assigned(0, "a"),
        processed(5, "a", 0, 10),
        assigned(10, "b", 2),
        committed(20, "a", 10, began=8),
        processed(30, "b", 0, 10, 2),
    )
    assert problems(*events) == []


def test_committed_offsets_that_go_back_are_found() -> None:
    assert problems(*GOOD, committed(70, "a", 6)) == ["returned: partition 0: a commits 6 after 10"]
    assert problems(*GOOD, committed(70, "a", 6, began=55)) == []
    assert problems(*GOOD, seen=(4, 10, 9)) == ["returned: partition 0: 9 seen after 10"]


def test_an_owner_that_skips_or_repeats_is_found() -> None:
    events = (processed(1, "a", 0, 5), processed(2, "a", 6, 8), processed(3, "a", 5, 10))
    assert problems(*events) == [
        "disordered: partition 0: a goes from 5 to 6",
        "disordered: partition 0: a goes from 8 to 5",
    ]


def test_many_problems_of_one_kind_are_counted() -> None:
    found = problems(*(processed(n, "a", 0, 10) for n in range(9)))
    assert len(found) == 6
    assert found[-1] == "disordered: 3 more"


def test_the_torn_last_line_of_a_killed_member_is_ignored() -> None:
    line = "\t".join(str(value) for value in GOOD[1])
    assert parse([line + "\n", line[:9]]) == [GOOD[1]]
