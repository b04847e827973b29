"""The checker of streams groups finds each kind of fault in a constructed history."""

from __future__ import annotations

import pytest

from chaos.groups.streams_checker import KINDS, check_streams_group
from chaos.groups.streams_history import (
    OwnedTasks,
    ServedHeartbeat,
    StreamsHistory,
    StreamsIdentity,
    TaskCommit,
)
from chaos.groups.streams_topology import STATEFUL, STATELESS, StreamsTopology, Task

NONE: frozenset[Task] = frozenset()
# Two tasks without state, 0 and 1, and one with state.
TOPOLOGY = StreamsTopology("input", 2, 1)
STORE = Task(STATEFUL, 0)
PROPER = {"a": "active", "b": "standby"}


def identity(name: str) -> StreamsIdentity:
    """Return a member. A digit in the name is its process, a dot ends the instance id."""
    process = "".join(filter(str.isdigit, name)) or name
    instance, dot, _ = name.partition(".")
    return StreamsIdentity(name, process, instance if dot else None)


def served(at: float, member: str, epoch: int, *tasks: int, joins: bool = False) -> ServedHeartbeat:
    active = frozenset(Task(STATELESS, number) for number in tasks)
    return ServedHeartbeat(at, at - 0.1, identity(member), epoch, OwnedTasks(active), joins)


def stored(at: float, member: str, epoch: int, *roles: str) -> ServedHeartbeat:
    """The member has the task with state in these roles."""
    tasks = OwnedTasks(**{role: frozenset({STORE}) for role in roles})
    return ServedHeartbeat(at, at - 0.1, identity(member), epoch, tasks, False)


def committed(asked: float, member: str, epoch: int, task: int, error: int) -> TaskCommit:
    return TaskCommit(asked, identity(member), epoch, Task(STATELESS, task), error)


def history(*heartbeats: ServedHeartbeat, commit: TaskCommit | None = None) -> StreamsHistory:
    return StreamsHistory(TOPOLOGY, list(heartbeats), [] if commit is None else [commit])


def departed(commit: TaskCommit) -> StreamsHistory:
    found = history(served(1, "a", 1, 0), commit=commit)
    found.departures[identity("a")] = 2.0
    return found


def final(store: dict[str, str], **tasks: set[int]) -> StreamsHistory:
    """Each member has these tasks without state, and the one with state in the role in `store`."""
    found = history()
    for member, owned in tasks.items():
        roles = {role: frozenset({STORE}) for name, role in store.items() if name == member}
        active = frozenset(Task(STATELESS, number) for number in owned)
        found.final[identity(member)] = OwnedTasks(
            active | roles.pop("active", NONE), roles.pop("standby", NONE)
        )
    return found


def with_needless_standby() -> StreamsHistory:
    """A task without state has a standby task."""
    found = final(PROPER, a={0}, b={1})
    found.final[identity("c")] = OwnedTasks(standby=frozenset({Task(STATELESS, 0)}))
    return found


# The member "b" gets the task from "a" in epoch 3.
MOVED = (served(1, "a", 1, 0, 1), served(2, "a", 1, 0), served(3, "b", 3, 1), served(4, "a", 3, 0))
# The member "x1" releases the standby task, which "y1" of the same process gets.
PASSED = (
    stored(1, "x1", 1, "standby"),
    stored(2, "x1", 1),
    stored(3, "y1", 2, "standby"),
    stored(4, "x1", 2),
)
FAULTS = [
    ("owned twice", history(*MOVED[:3], served(4, "a", 4, 0, 1), served(5, "b", 4, 1))),
    ("owned twice", history(served(1, "a", 1, 0), served(2, "b", 1, 0))),
    ("owned twice", history(served(1, "a", 1, 0), served(2, "b", 2, 0), served(3, "a", 3, 0))),
    ("owned twice", history(served(1, "a", 1, 0), served(2, "b", 2, 0), served(3, "a", 1))),
    ("shared state", history(stored(1, "a", 1, "active", "standby"))),
    ("shared state", history(stored(1, "a", 1, "standby", "warmup"))),
    ("shared state", history(stored(1, "x1", 1, "standby"), stored(2, "y1", 1, "standby"))),
    ("shared state", history(stored(1, "x1", 1, "active"), stored(2, "y1", 1, "standby"))),
    ("shared state", history(PASSED[0], PASSED[2], stored(4, "x1", 1))),
    ("shared state", history(PASSED[0], stored(3, "y1", 2, "active"), stored(4, "x1", 1))),
    ("shared state", final({"x1": "active", "y1": "standby"}, x1={0, 1}, y1=set(), z2=set())),
    ("epoch went back", history(served(1, "a", 3), served(2, "a", 2))),
    ("epoch went back", history(served(1, "a", 3), served(2, "a", 2, joins=True))),
    ("outdated commit", history(*MOVED, commit=committed(3.5, "a", 1, 1, 0))),
    ("outdated commit", departed(committed(2.5, "a", 1, 0, 0))),
    ("unassigned", final(PROPER, a={0}, b=set())),
    ("unassigned", final(PROPER, a={0, 1}, b={1})),
    ("unassigned", final({"b": "standby"}, a={0}, b={1})),
    ("wrong standbys", final({"a": "active"}, a={0}, b={1})),
    (
        "wrong standbys",
        final({"a": "active", "b": "standby", "c": "standby"}, a={0}, b={1}, c=set()),
    ),
    ("wrong standbys", with_needless_standby()),
]
CORRECT = [
    history(*MOVED),
    # "a" gives up all tasks, joins again, and gets the task back from "b".
    history(*MOVED, served(5, "a", 3, joins=True), served(6, "b", 3), served(7, "a", 5, 1)),
    # A former coordinator still serves "a", which joins again when its successor has removed it.
    history(served(1, "a", 1, 0), served(2, "b", 2, 0), served(3, "a", 1, 0)),
    history(served(1, "a", 1, 0), served(2, "b", 2, 0), served(3, "a", 2, joins=True)),
    # A static member returns with another member id, and keeps its task.
    history(served(1, "a.1", 2, 0), served(2, "a.2", 2, 0, joins=True)),
    history(*PASSED),
    # Two processes have the standby task, or one has the standby task of the other's active task.
    history(stored(1, "x1", 1, "standby"), stored(2, "y2", 1, "standby")),
    history(stored(1, "x1", 1, "active"), stored(2, "y2", 1, "standby")),
    # The task changes its role within a member.
    history(
        stored(1, "x1", 1, "active"), stored(2, "x1", 1, "standby"), stored(3, "y2", 2, "active")
    ),
    history(stored(1, "x1", 1, "standby"), stored(2, "x1", 1, "active")),
    # The commit was sent before the task moved, is refused, or has the epoch of the new owner.
    history(*MOVED, commit=committed(2.5, "a", 1, 1, 0)),
    history(*MOVED, commit=committed(3.5, "a", 1, 1, 113)),
    history(*MOVED, commit=committed(3.5, "b", 3, 1, 0)),
    # Without the task, its epoch is of no importance.
    history(*MOVED, commit=committed(3.5, "a", 1, 0, 0)),
    departed(committed(1.5, "a", 1, 0, 0)),
    final(PROPER, a={0}, b={1}),
    # One process cannot have standby tasks.
    final({"x1": "active"}, x1={0}, y1={1}),
]


@pytest.mark.parametrize(("kind", "found"), FAULTS)
def test_a_fault_is_found(kind: str, found: StreamsHistory) -> None:
    assert set(check_streams_group(found).counts) == {kind}


@pytest.mark.parametrize("found", CORRECT)
def test_nothing_is_found_in_a_correct_history(found: StreamsHistory) -> None:
    assert str(check_streams_group(found)) == "no faults"


def test_each_kind_has_a_history() -> None:
    assert {kind for kind, _ in FAULTS} == {*KINDS}
