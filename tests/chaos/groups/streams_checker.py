"""Checks the guarantees of streams groups (KIP-1071) in a history of its members.

They hold at all times, also while a former coordinator, which cannot change anything any more, does
not know of its successor:

owned twice       a member had a task in an epoch in which another member had it too, or got it
                  before the coordinator took it from the other member
epoch went back   a member got a lower epoch than before
outdated commit   an offset was committed with an earlier epoch than that in which another member
                  already had the task, or by a member that had left
unassigned        long after the last fault, a task has no owner or two
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from chaos.verdict import Verdict

if TYPE_CHECKING:
    from chaos.groups.streams_history import ServedHeartbeat, StreamsHistory, TaskCommit

KINDS = ("owned twice", "epoch went back", "outdated commit", "unassigned")


class _Term(NamedTuple):
    """A time without interruption in which a member had a task."""

    # Its first and last epoch.
    first: int
    last: int
    member: str
    # When the member got the task.
    began: float
    # When the member sent the heartbeat whose response took the task; 0 if it lost it otherwise.
    taken: float = 0.0


def check_streams_group(history: StreamsHistory) -> Verdict:
    """Return all violations of a history."""
    verdict = Verdict(KINDS)
    served: dict[str, list[ServedHeartbeat]] = defaultdict(list)
    for each in sorted(history.heartbeats):
        served[each.member].append(each)
    terms: dict[int, list[_Term]] = defaultdict(list)
    for heartbeats in served.values():
        _check_epochs(heartbeats, verdict)
        _add_terms(heartbeats, terms)
    for task, found in terms.items():
        _check_owners(task, sorted(found), verdict)
    for commit in history.commits:
        if not commit.error_code:
            _check_commit(commit, terms[commit.task], history, verdict)
    if history.final:
        owners = Counter(task for tasks in history.final.values() for task in tasks)
        for task in range(history.tasks):
            if owners[task] != 1:
                verdict.add("unassigned", f"task {task} has {owners[task]} owners")
    return verdict


def _check_epochs(heartbeats: list[ServedHeartbeat], verdict: Verdict) -> None:
    for before, after in pairwise(heartbeats):
        if after.epoch < before.epoch:
            text = f"{after.member} at {after.at:.3f}: from {before.epoch} to {after.epoch}"
            verdict.add("epoch went back", text)


def _add_terms(heartbeats: list[ServedHeartbeat], terms: dict[int, list[_Term]]) -> None:
    """Add the terms of one member, by task."""
    current: dict[int, _Term] = {}
    for each in heartbeats:
        for task in sorted(current):
            if each.is_joining:
                terms[task].append(current.pop(task))
            elif task not in each.tasks:
                terms[task].append(current.pop(task)._replace(taken=each.asked))
        for task in each.tasks:
            began = current.get(task) or _Term(each.epoch, each.epoch, each.member, each.at)
            current[task] = began._replace(last=each.epoch)
    for task, term in current.items():
        terms[task].append(term)


def _check_owners(task: int, terms: list[_Term], verdict: Verdict) -> None:
    """Check the terms of one task, in the order of their first epochs."""
    for index, later in enumerate(terms):
        for earlier in terms[:index]:
            is_early = later.first <= earlier.last or later.began < earlier.taken
            if is_early and later.member != earlier.member:
                verdict.add(
                    "owned twice",
                    f"task {task}: {later.member} has it from epoch {later.first} at "
                    f"{later.began:.3f}, {earlier.member} had it until epoch {earlier.last} and "
                    f"{earlier.taken:.3f}",
                )


def _check_commit(
    commit: TaskCommit, terms: list[_Term], history: StreamsHistory, verdict: Verdict
) -> None:
    """Check whether an accepted commit was outdated when it was sent."""
    text = f"task {commit.task}: {commit.member} in epoch {commit.epoch} at {commit.asked:.3f}"
    left = history.departures.get(commit.member)
    if left is not None and left <= commit.asked:
        verdict.add("outdated commit", f"{text} after it left at {left:.3f}")
    for term in terms:
        is_outdated = term.first > commit.epoch and term.began <= commit.asked
        if is_outdated and term.member != commit.member:
            later = f"{term.member} has it since epoch {term.first} at {term.began:.3f}"
            verdict.add("outdated commit", f"{text}, but {later}")
