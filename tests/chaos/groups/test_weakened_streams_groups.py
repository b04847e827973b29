"""Each rule of streams groups is disabled in turn, and the checker must find it.

Three simulated brokers run with members and faults (`simulation.groups.streams_walk`). With all
rules, the checker finds nothing in these runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from barnabas.coordinator.group import offset_changes
from barnabas.coordinator.group.group_kind import MemberTimers
from barnabas.coordinator.group.offset_changes import check_streams_commit
from barnabas.coordinator.group.streams import (
    streams_membership,
    task_assignors,
    task_reconciliation,
)
from barnabas.coordinator.group.streams.streams_membership import StreamsMembership
from barnabas.coordinator.group.streams.task_reconciliation import StreamsMemberState
from barnabas.protocol.errors import ErrorCode
from chaos.groups.streams_checker import KINDS
from selection import nightly_unless
from simulation.groups.streams_walk import StreamsWalk

pytestmark = pytest.mark.seeded

# A weakened rule must be found by one of these seeds.
SEEDS = range(4, 10)
# The faults of seed 5 leave its members too little time to be judged.
CORRECT_SEEDS = (4, *range(6, 11))
# Virtual seconds of one run.
SECONDS = 6.0

Weaken = Callable[[pytest.MonkeyPatch], None]


class Rule(NamedTuple):
    """How to leave a rule out, the finding that shows it, and the style of the walks."""

    weaken: Weaken
    kind: str
    style: str


RULES: dict[str, Rule] = {}
# Rules that are similar to others; `make nightly` tests them.
SIMILAR = {
    "standby tasks are assigned before their release",
    "active tasks do not wait for standby tasks of the process",
    "former members may commit",
    "sessions are not armed after loading",
}


def rule(kind: str, style: str = "members") -> Callable[[Weaken], Weaken]:
    """Add a weakened rule, named after its function."""
    assert kind in KINDS

    def register(weaken: Weaken) -> Weaken:
        RULES[weaken.__name__.replace("_", " ")] = Rule(weaken, kind, style)
        return weaken

    return register


@rule("owned twice")
def tasks_are_assigned_before_their_release(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(task_reconciliation._Step, "_is_active_taken", lambda *_: False)


@rule("shared state")
def standby_tasks_are_assigned_before_their_release(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(task_reconciliation._Step, "_is_standby_taken", lambda *_: False)


@rule("shared state")
def active_tasks_do_not_wait_for_standby_tasks_of_the_process(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(task_reconciliation._Step, "_has_sibling_standby", lambda *_: False)


@rule("wrong standbys")
def standby_tasks_are_not_assigned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(task_assignors._Assigning, "assign_standby", lambda _: iter(()))


@rule("outdated commit")
def epochs_are_not_checked_at_commits(patch: pytest.MonkeyPatch) -> None:
    _accept_commits(patch, ErrorCode.STALE_MEMBER_EPOCH)


@rule("outdated commit")
def former_members_may_commit(patch: pytest.MonkeyPatch) -> None:
    _accept_commits(patch, ErrorCode.UNKNOWN_MEMBER_ID)


def _accept_commits(patch: pytest.MonkeyPatch, ignored: ErrorCode) -> None:
    def check(*args: Any) -> ErrorCode:
        error = check_streams_commit(*args)
        return ErrorCode.NONE if error is ignored else error

    patch.setattr(offset_changes, "check_streams_commit", check)


@rule("epoch went back")
def the_epoch_of_a_member_falls_while_it_releases_tasks(patch: pytest.MonkeyPatch) -> None:
    real = task_reconciliation.advanced

    def advanced(member: Any, state: StreamsMemberState, epoch: int, *tasks: Any) -> Any:
        must_release = state is StreamsMemberState.UNREVOKED_TASKS
        return real(member, state, epoch - must_release, *tasks)

    patch.setattr(task_reconciliation, "advanced", advanced)


@rule("unassigned")
def sessions_do_not_time_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemberTimers, "restart_session", lambda *_: None)


@rule("unassigned", "mixed")
def sessions_are_not_armed_after_loading(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StreamsMembership, "start_timers", lambda *_: None)


@rule("unassigned")
def tombstones_of_members_are_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(streams_membership, "member_tombstones", lambda *_: [])


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_unless(lambda name: name not in SIMILAR, RULES))
def test_a_disabled_rule_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disabled = RULES[name]
    disabled.weaken(monkeypatch)
    seen: list[list[str]] = []
    for seed in SEEDS:
        verdict = StreamsWalk(seed, disabled.style).play(SECONDS)
        seen.append(sorted(verdict.counts))
        if disabled.kind in verdict.counts:
            print(f"{name}: seed {seed}: {verdict}")
            return
    pytest.fail(f"not noticed; found by seed: {seen}")


@pytest.mark.slow
@pytest.mark.parametrize("style", nightly_unless("mixed".__eq__, ["members", "mixed"]))
def test_nothing_is_found_with_all_rules(style: str) -> None:
    for seed in CORRECT_SEEDS:
        walk = StreamsWalk(seed, style)
        verdict = walk.play(SECONDS)
        assert verdict.is_clean, f"seed {seed}: {verdict}\n{walk.log}"
        history = walk.world.history
        accepted = [each for each in history.commits if not each.error_code]
        assert min(len(history.heartbeats), len(accepted)) > 20, seed
        assert len(accepted) < len(history.commits), seed
