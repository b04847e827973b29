"""The checker of streams groups finds each kind of fault in a constructed history."""

from __future__ import annotations

import pytest

from chaos.groups.streams_checker import KINDS, check_streams_group
from chaos.groups.streams_history import ServedHeartbeat, StreamsHistory, TaskCommit


def served(at: float, member: str, epoch: int, *tasks: int, joins: bool = False) -> ServedHeartbeat:
    return ServedHeartbeat(at, at - 0.1, member, epoch, frozenset(tasks), joins)


def history(*heartbeats: ServedHeartbeat, commit: TaskCommit | None = None) -> StreamsHistory:
    return StreamsHistory(2, list(heartbeats), [] if commit is None else [commit])


def departed(commit: TaskCommit) -> StreamsHistory:
    found = history(served(1, "a", 1, 0), commit=commit)
    found.departures["a"] = 2.0
    return found


def final(**tasks: set[int]) -> StreamsHistory:
    found = history()
    found.final = {member: frozenset(owned) for member, owned in tasks.items()}
    return found


# The member "b" gets the task from "a" in epoch 3.
MOVED = (served(1, "a", 1, 0, 1), served(2, "a", 1, 0), served(3, "b", 3, 1), served(4, "a", 3, 0))
FAULTS = [
    ("owned twice", history(*MOVED[:3], served(4, "a", 4, 0, 1), served(5, "b", 4, 1))),
    ("owned twice", history(served(1, "a", 1, 0), served(2, "b", 1, 0))),
    ("owned twice", history(served(1, "a", 1, 0), served(2, "b", 2, 0), served(3, "a", 3, 0))),
    ("owned twice", history(served(1, "a", 1, 0), served(2, "b", 2, 0), served(3, "a", 1))),
    ("epoch went back", history(served(1, "a", 3), served(2, "a", 2))),
    ("epoch went back", history(served(1, "a", 3), served(2, "a", 2, joins=True))),
    ("outdated commit", history(*MOVED, commit=TaskCommit(3.5, "a", 1, 1, 0))),
    ("outdated commit", departed(TaskCommit(2.5, "a", 1, 0, 0))),
    ("unassigned", final(a={0}, b=set())),
    ("unassigned", final(a={0, 1}, b={1})),
]
CORRECT = [
    history(*MOVED),
    # "a" gives up all tasks, joins again, and gets the task back from "b".
    history(*MOVED, served(5, "a", 3, joins=True), served(6, "b", 3), served(7, "a", 5, 1)),
    # A former coordinator still serves "a", which joins again when its successor has removed it.
    history(served(1, "a", 1, 0), served(2, "b", 2, 0), served(3, "a", 1, 0)),
    history(served(1, "a", 1, 0), served(2, "b", 2, 0), served(3, "a", 2, joins=True)),
    # The commit was sent before the task moved, is refused, or has the epoch of the new owner.
    history(*MOVED, commit=TaskCommit(2.5, "a", 1, 1, 0)),
    history(*MOVED, commit=TaskCommit(3.5, "a", 1, 1, 113)),
    history(*MOVED, commit=TaskCommit(3.5, "b", 3, 1, 0)),
    # Without the task, its epoch is of no importance.
    history(*MOVED, commit=TaskCommit(3.5, "a", 1, 0, 0)),
    departed(TaskCommit(1.5, "a", 1, 0, 0)),
    final(a={0}, b={1}),
]


@pytest.mark.parametrize(("kind", "found"), FAULTS)
def test_a_fault_is_found(kind: str, found: StreamsHistory) -> None:
    assert set(check_streams_group(found).counts) == {kind}


@pytest.mark.parametrize("found", CORRECT)
def test_nothing_is_found_in_a_correct_history(found: StreamsHistory) -> None:
    assert str(check_streams_group(found)) == "no faults"


def test_each_kind_has_a_history() -> None:
    assert {kind for kind, _ in FAULTS} == {*KINDS}
