"""Checks the guarantees of streams groups (KIP-1071) in a history of its members.

They hold at all times, also while a former coordinator, which cannot change anything any more, does
not know of its successor:

owned twice       a member had an active task in an epoch in which another member had it too, or got
                  it before the coordinator took it from the other member
shared state      a process had a standby or warm-up task beside the same task in another role or in
                  another of its members, so that two members used one state directory
epoch went back   a member got a lower epoch than before
outdated commit   an offset was committed with an earlier epoch than that in which another member
                  already had the task, or by a member that had left
unassigned        long after the last fault, a task has no owner or two
wrong standbys    long after the last fault, a task with state has not one standby task, although
                  there are two processes, or a task without state has one
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from chaos.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chaos.groups.streams_history import (
        OwnedTasks,
        ServedHeartbeat,
        StreamsHistory,
        StreamsIdentity,
        TaskCommit,
    )
    from chaos.groups.streams_topology import Task

KINDS = (
    "owned twice",
    "shared state",
    "epoch went back",
    "outdated commit",
    "unassigned",
    "wrong standbys",
)


class _Term(NamedTuple):
    """A time without interruption in which a member had a task in one role."""

    # Its first and last epoch.
    first: int
    last: int
    # The owner, which may be several members one after the other.
    owner: str
    is_active: bool
    # When the member got the task.
    began: float
    # When the member sent the heartbeat whose response took the task; 0 if it lost it otherwise.
    taken: float = 0.0


def check_streams_group(history: StreamsHistory) -> Verdict:
    """Return all violations of a history."""
    verdict = Verdict(KINDS)
    served: dict[StreamsIdentity, list[ServedHeartbeat]] = defaultdict(list)
    for each in sorted(history.heartbeats, key=lambda each: each.at):
        served[each.member].append(each)
    # The terms of active tasks, and the terms in each process.
    active: dict[Task, list[_Term]] = defaultdict(list)
    local: dict[tuple[Task, str], list[_Term]] = defaultdict(list)
    for member, heartbeats in served.items():
        _check_member(heartbeats, verdict)
        for is_active in (True, False):
            for task, term in _terms(heartbeats, is_active=is_active):
                local[task, member.process_id].append(term)
                if is_active:
                    active[task].append(term)
    for task, terms in active.items():
        for earlier, later in _overlaps(terms):
            verdict.add("owned twice", _both(task, earlier, later))
    for (task, process), terms in local.items():
        for earlier, later in _overlaps(terms):
            if not (earlier.is_active and later.is_active):
                verdict.add("shared state", f"{process}: {_both(task, earlier, later)}")
    for commit in history.commits:
        if not commit.error_code:
            _check_commit(commit, active[commit.task], history, verdict)
    if history.final:
        check_final(history, verdict)
    return verdict


def _check_member(heartbeats: list[ServedHeartbeat], verdict: Verdict) -> None:
    for each in heartbeats:
        for task in (
            each.tasks.active & each.tasks.replicas | each.tasks.standby & each.tasks.warmup
        ):
            verdict.add("shared state", f"{_at(each)}: task {task} in two roles")
    for before, after in pairwise(heartbeats):
        if after.epoch < before.epoch:
            verdict.add("epoch went back", f"{_at(after)}: from {before.epoch} to {after.epoch}")


def _at(heartbeat: ServedHeartbeat) -> str:
    return f"{heartbeat.member.member_id} at {heartbeat.at:.3f}"


def _terms(
    heartbeats: Sequence[ServedHeartbeat], *, is_active: bool
) -> Iterator[tuple[Task, _Term]]:
    """Yield the tasks that one member had in a role, with the terms."""
    current: dict[Task, _Term] = {}
    for each in heartbeats:
        tasks = each.tasks.active if is_active else each.tasks.replicas
        for task in sorted(current):
            if each.is_joining:
                yield task, current.pop(task)
            elif task not in tasks:
                yield task, current.pop(task)._replace(taken=each.asked)
        new = _Term(each.epoch, each.epoch, each.member.owner, is_active, each.at)
        for task in tasks:
            current[task] = current.get(task, new)._replace(last=each.epoch)
    yield from current.items()


def _overlaps(terms: list[_Term]) -> Iterator[tuple[_Term, _Term]]:
    """Yield the pairs of terms of different owners that were not one after the other."""
    ordered = sorted(terms)
    for index, later in enumerate(ordered):
        for earlier in ordered[:index]:
            is_early = later.first <= earlier.last or later.began < earlier.taken
            if is_early and later.owner != earlier.owner:
                yield earlier, later


def _both(task: Task, earlier: _Term, later: _Term) -> str:
    return (
        f"task {task}: {later.owner} has it from epoch {later.first} at {later.began:.3f}, "
        f"{earlier.owner} had it until epoch {earlier.last} and {earlier.taken:.3f}"
    )


def _check_commit(
    commit: TaskCommit, terms: list[_Term], history: StreamsHistory, verdict: Verdict
) -> None:
    """Check whether an accepted commit was outdated when it was sent."""
    member = commit.member
    text = f"task {commit.task}: {member.member_id} in epoch {commit.epoch} at {commit.asked:.3f}"
    left = history.departures.get(member)
    if left is not None and left <= commit.asked:
        verdict.add("outdated commit", f"{text} after it left at {left:.3f}")
    for term in terms:
        is_outdated = term.first > commit.epoch and term.began <= commit.asked
        if is_outdated and term.owner != member.owner:
            later = f"{term.owner} has it since epoch {term.first} at {term.began:.3f}"
            verdict.add("outdated commit", f"{text}, but {later}")


def check_final(history: StreamsHistory, verdict: Verdict) -> None:
    """Check the tasks of the members long after the last fault."""
    final: dict[StreamsIdentity, OwnedTasks] = history.final
    has_two_processes = len({member.process_id for member in final}) > 1
    for task in sorted(history.topology.tasks):
        owners = [member for member, tasks in final.items() if task in tasks.active]
        if len(owners) != 1:
            verdict.add("unassigned", f"task {task} has {len(owners)} owners")
        replicas = [member for member, tasks in final.items() if task in tasks.replicas]
        is_replicated = has_two_processes and task in history.topology.stateful_tasks
        if len(replicas) != is_replicated:
            verdict.add("wrong standbys", f"task {task} has {len(replicas)} standby tasks")
        for process in {each.process_id for each in owners} & {
            each.process_id for each in replicas
        }:
            verdict.add("shared state", f"task {task} is active and standby in {process}")
