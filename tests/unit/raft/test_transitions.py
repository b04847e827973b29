"""The diagram in docs/replication.md and the transitions that happen equal those in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.raft.core.replica import Replica
from barnabas.raft.core.roles import TRANSITIONS, Role
from unit.raft.core_requests import run_failures
from unit.raft.quorum_world import QuorumWorld

DOCUMENT = Path(__file__).parents[3] / "docs" / "replication.md"
ARROW = re.compile(r"^    (\w+|\[\*\]) --> (\w+)$", re.MULTILINE)

Arrow = tuple[str, str]


def transition_table() -> set[Arrow]:
    return {
        (one.__name__, other.__name__) for one, others in TRANSITIONS.items() for other in others
    }


def test_the_diagram_equals_the_table() -> None:
    arrows = set(ARROW.findall(DOCUMENT.read_text()))
    assert {arrow for arrow in arrows if arrow[0] != "[*]"} == transition_table()


def test_exactly_the_transitions_of_the_table_happen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: set[Arrow] = set()
    first: set[str] = set()
    enter, begin = Replica._enter, Replica.begin

    def watched_enter(replica: Replica, role: Role) -> None:
        seen.add((type(replica.role).__name__, type(role).__name__))
        enter(replica, role)

    def watched_begin(replica: Replica, now_ms: float) -> None:
        begin(replica, now_ms)
        first.add(type(replica.role).__name__)

    monkeypatch.setattr(Replica, "_enter", watched_enter)
    monkeypatch.setattr(Replica, "begin", watched_begin)
    seed = 0
    while seen != transition_table() and seed < 400:
        run_failures(QuorumWorld(3 + 2 * (seed % 2), seed + 500, observers=1), rounds=25)
        seed += 1
    assert seen == transition_table(), transition_table() - seen
    arrows = ARROW.findall(DOCUMENT.read_text())
    assert first == {to for start, to in arrows if start == "[*]"}
