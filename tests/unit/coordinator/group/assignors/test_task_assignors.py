"""The task assignors on drawn groups: complete, balanced and sticky."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from barnabas.coordinator.group.streams import task_assignors
from barnabas.coordinator.group.streams.task_assignors import (
    MemberTasks,
    StreamsInput,
    StreamsMemberInput,
    SubtopologyInput,
    Task,
    TaskAssignorError,
    Tasks,
    assign_sticky,
)
from barnabas.waiting.steps import run_to_end


@st.composite
def groups(draw: st.DrawFn, *, replicas: int | None = None) -> StreamsInput:
    subtopologies = {
        name: SubtopologyInput(draw(st.integers(1, 5)), draw(st.booleans())) for name in "012"
    }
    tasks = [(name, i) for name, each in subtopologies.items() for i in range(each.tasks + 1)]
    members = {}
    free = set(tasks)
    for number in range(draw(st.integers(1, 6))):
        # An active task has one owner, but may be gone. Standby tasks may be anywhere.
        active = draw(st.sets(st.sampled_from(sorted(free)))) if free else set()
        free -= active
        standby = draw(st.sets(st.sampled_from(tasks), max_size=4)) - active
        members[f"m{number}"] = StreamsMemberInput(
            draw(st.sampled_from("pqr")), MemberTasks(grouped(active), grouped(standby))
        )
    count = draw(st.integers(0, 3)) if replicas is None else replicas
    return StreamsInput(members, subtopologies, count)


def grouped(tasks: set[Task]) -> Tasks:
    return {
        name: frozenset(number for other, number in tasks if other == name)
        for name in {name for name, _ in tasks}
    }


def listed(tasks: Tasks) -> list[Task]:
    return sorted((name, number) for name, own in tasks.items() for number in own)


def all_tasks(group: StreamsInput, *, stateful: bool = False) -> list[Task]:
    return sorted(
        (name, number)
        for name, each in group.subtopologies.items()
        if each.is_stateful or not stateful
        for number in range(each.tasks)
    )


def by_process(group: StreamsInput, found: dict[str, MemberTasks]) -> dict[str, list[Task]]:
    tasks: dict[str, list[Task]] = {}
    for name, own in found.items():
        process = tasks.setdefault(group.members[name].process_id, [])
        process += listed(own.active) + listed(own.standby)
    return tasks


@given(groups())
def test_each_active_task_has_one_member(group: StreamsInput) -> None:
    found = run_to_end(assign_sticky(group))
    assert found.keys() == group.members.keys()
    active = [task for own in found.values() for task in listed(own.active)]
    assert sorted(active) == all_tasks(group)


@given(groups())
def test_a_process_has_each_task_once(group: StreamsInput) -> None:
    for tasks in by_process(group, run_to_end(assign_sticky(group))).values():
        assert len(set(tasks)) == len(tasks)


@given(groups())
def test_stateful_tasks_have_as_many_standbys_as_processes_allow(group: StreamsInput) -> None:
    found = run_to_end(assign_sticky(group))
    standby = [task for own in found.values() for task in listed(own.standby)]
    processes = {each.process_id for each in group.members.values()}
    count = min(group.standby_replicas, len(processes) - 1)
    assert sorted(standby) == sorted(all_tasks(group, stateful=True) * count)


@given(groups(replicas=0))
def test_members_without_state_to_keep_are_balanced(group: StreamsInput) -> None:
    fresh = {name: StreamsMemberInput(each.process_id) for name, each in group.members.items()}
    members = StreamsInput(fresh, group.subtopologies)
    found = run_to_end(assign_sticky(members))
    loads: dict[str, list[int]] = {}
    for name, own in found.items():
        loads.setdefault(fresh[name].process_id, []).append(len(listed(own.active)))
    # Processes take part by their numbers of members, and the members of a process are equal.
    assert all(max(own) - min(own) <= 1 for own in loads.values())
    shares = [sum(own) / len(own) for own in loads.values()]
    assert max(shares) - min(shares) <= 1


@given(groups(replicas=0))
def test_an_assignment_without_standbys_stays_when_nothing_changes(group: StreamsInput) -> None:
    first = run_to_end(assign_sticky(group))
    again = {
        name: StreamsMemberInput(each.process_id, first[name])
        for name, each in group.members.items()
    }
    second = run_to_end(assign_sticky(StreamsInput(again, group.subtopologies)))
    loads = [len(listed(own.active)) for own in first.values()]
    if max(loads) - min(loads) <= 1:
        assert second == first


@given(groups())
def test_tasks_of_small_groups_are_those_of_the_general_algorithm(group: StreamsInput) -> None:
    """Also if members keep the tasks that they have."""
    for _ in range(2):
        found = run_to_end(assign_sticky(group))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(task_assignors, "_known_tasks", lambda _: None)
            assert run_to_end(assign_sticky(group)) == found
        members = {
            name: StreamsMemberInput(each.process_id, found[name])
            for name, each in group.members.items()
        }
        group = StreamsInput(members, group.subtopologies, group.standby_replicas)


@given(groups())
def test_the_result_depends_on_the_input_alone(group: StreamsInput) -> None:
    assert run_to_end(assign_sticky(group)) == run_to_end(assign_sticky(group))


def test_an_active_task_moves_to_a_member_with_its_state() -> None:
    old = MemberTasks(standby={"0": frozenset({0, 1})})
    members = {"new": StreamsMemberInput("p"), "standby": StreamsMemberInput("q", old)}
    group = StreamsInput(members, {"0": SubtopologyInput(2, is_stateful=True)}, 1)
    found = run_to_end(assign_sticky(group))
    assert len(listed(found["standby"].active)) == 1
    assert len(listed(found["new"].active)) == 1
    # Each has the standby of the other's task.
    assert listed(found["standby"].standby) == listed(found["new"].active)


def test_a_member_with_more_of_the_state_is_preferred() -> None:
    members = {
        "little": StreamsMemberInput("p", offsets={"0": {0: 10}}),
        "much": StreamsMemberInput("q", offsets={"0": {0: 90}}),
    }
    group = StreamsInput(members, {"0": SubtopologyInput(1, is_stateful=True)})
    assert listed(run_to_end(assign_sticky(group))["much"].active) == [("0", 0)]


def test_a_group_without_members_cannot_get_tasks() -> None:
    group = StreamsInput({}, {"0": SubtopologyInput(1, is_stateful=False)})
    with pytest.raises(TaskAssignorError, match="No member"):
        run_to_end(assign_sticky(group))


def test_a_large_group_is_computed_in_many_steps() -> None:
    members = {f"m{number}": StreamsMemberInput(f"p{number % 50}") for number in range(200)}
    tasks = SubtopologyInput(1_000, is_stateful=True)
    steps = sum(1 for _ in assign_sticky(StreamsInput(members, {"0": tasks}, 1)))
    assert steps > 50
