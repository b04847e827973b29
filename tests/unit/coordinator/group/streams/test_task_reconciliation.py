"""How a member of a streams group moves towards its target tasks."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.group_base import GroupMemory, RefusalError
from barnabas.coordinator.group.streams.streams_group import StreamsGroup
from barnabas.coordinator.group.streams.task_assignors import MemberTasks
from barnabas.coordinator.group.streams.task_reconciliation import (
    OwnedTasks,
    StreamsMember,
    StreamsMemberState,
    TaskReconciliation,
    reconcile_tasks,
)

TASK = {"0": frozenset({0})}
STABLE = StreamsMemberState.STABLE
UNREVOKED = StreamsMemberState.UNREVOKED_TASKS
UNRELEASED = StreamsMemberState.UNRELEASED_TASKS


def member(name: str, process: str, assigned: OwnedTasks | None = None) -> StreamsMember:
    return StreamsMember(
        name, member_epoch=1, process_id=process, assigned=assigned or OwnedTasks()
    )


def step(
    moved: StreamsMember,
    target: MemberTasks,
    *others: StreamsMember,
    reported: MemberTasks | None = None,
) -> StreamsMember:
    group = StreamsGroup("g", GroupMemory())
    for each in (moved, *others):
        group.put(each)
    return reconcile_tasks(moved, TaskReconciliation(2, target, group, reported))


ACTIVE = OwnedTasks(active={"0": {0: 1}})


def test_an_active_task_of_another_process_is_not_given_away() -> None:
    after = step(member("a", "p"), MemberTasks(active=TASK), member("b", "q", ACTIVE))
    assert (after.state, after.member_epoch, after.assigned) == (UNRELEASED, 2, OwnedTasks())


def test_a_standby_task_may_be_on_two_processes() -> None:
    after = step(member("a", "p"), MemberTasks(standby=TASK), member("b", "q", ACTIVE))
    assert (after.state, after.assigned.standby) == (STABLE, TASK)


def test_a_standby_task_waits_for_a_member_of_the_same_process() -> None:
    after = step(member("a", "p"), MemberTasks(standby=TASK), member("b", "p", ACTIVE))
    assert (after.state, after.assigned.standby) == (UNRELEASED, {})


def test_a_warm_up_task_waits_for_the_standby_task_of_the_same_process() -> None:
    other = member("b", "p", OwnedTasks(standby=TASK))
    after = step(member("a", "p"), MemberTasks(warmup=TASK), other)
    assert (after.state, after.assigned.warmup) == (UNRELEASED, {})


def test_an_active_task_becomes_a_standby_task_at_once_and_must_be_released() -> None:
    before = member("a", "p", ACTIVE)
    after = step(before, MemberTasks(standby=TASK))
    assert (after.state, after.assigned.standby) == (UNREVOKED, TASK)
    assert after.pending_revocation == ACTIVE


def test_a_standby_task_becomes_a_warm_up_task_without_a_release() -> None:
    before = member("a", "p", OwnedTasks(standby=TASK))
    after = step(before, MemberTasks(warmup=TASK))
    assert (after.state, after.assigned) == (STABLE, OwnedTasks(warmup=TASK))


def test_a_standby_task_stays_until_the_active_task_is_free() -> None:
    before = member("a", "p", OwnedTasks(standby=TASK))
    waiting = step(before, MemberTasks(active=TASK), member("b", "q", ACTIVE))
    assert (waiting.state, waiting.assigned) == (UNRELEASED, OwnedTasks(standby=TASK))
    granted = step(waiting, MemberTasks(active=TASK))
    assert (granted.state, granted.assigned) == (STABLE, OwnedTasks(active={"0": {0: 2}}))


def test_a_release_is_confirmed_by_the_owned_tasks() -> None:
    before = member("a", "p", ACTIVE)
    waiting = step(before, MemberTasks())
    assert waiting.state is UNREVOKED
    assert step(waiting, MemberTasks(), reported=MemberTasks(active=TASK)) is waiting
    after = step(waiting, MemberTasks(), reported=MemberTasks())
    assert (after.state, after.member_epoch, after.assigned) == (STABLE, 2, OwnedTasks())


def test_a_member_in_an_unknown_state_is_fenced_unless_it_owns_nothing() -> None:
    before = StreamsMember("a", process_id="p", state=StreamsMemberState.UNKNOWN)
    with pytest.raises(RefusalError):
        step(before, MemberTasks())
    assert step(before, MemberTasks(), reported=MemberTasks()).state is STABLE
