"""The topology and the tasks of streams groups, as tables and as JSON (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.cli.common.tables import dim, echo_line, echo_table, warn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.admin.group_descriptions import (
        StreamsGroupDescription,
        StreamsMember,
        StreamsTasks,
        Task,
    )

__all__ = ["echo_streams_members", "echo_topology", "streams_json"]


def echo_topology(group: StreamsGroupDescription) -> None:
    """Print the epochs of a streams group, and its subtopologies with their topics."""
    if group.topology_epoch < 0:
        echo_line("topology ", dim(None))
        return
    echo_line(
        f"topology epoch {group.topology_epoch}, group epoch {group.epoch}, assignment epoch ",
        _epoch(group.assignment_epoch, group.epoch),
    )
    rows = [
        (
            each.id,
            " ".join(each.inputs) or dim(None),
            " ".join(each.repartition_sink_topics) or dim(None),
            " ".join(each.changelog_topics) or dim(None),
        )
        for each in group.subtopologies
    ]
    if rows:
        echo_table(("subtopology", "reads", "repartitions to", "changelogs"), rows)


def echo_streams_members(group: StreamsGroupDescription) -> None:
    """Print the members of a streams group with their tasks."""
    rows = [
        (
            _name(member),
            member.process_id,
            member.client_id,
            member.host,
            _epoch(member.epoch, group.epoch),
            _tasks(member.assignment.active),
            _tasks(member.assignment.standby),
            _tasks(member.assignment.warmup),
            dim(None) if _same(member) else warn(_tasks(member.target.active)),
        )
        for member in group.members
    ]
    echo_table(
        ("member", "process", "client", "host", "epoch", "active", "standby", "warm-up", "target"),
        rows,
    )


def streams_json(group: StreamsGroupDescription) -> dict[str, Any]:
    """Return the topology and the tasks for JSON."""
    return {
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "topology_epoch": group.topology_epoch,
        "subtopologies": [
            {
                "subtopology": each.id,
                "source_topics": list(each.source_topics),
                "repartition_source_topics": list(each.repartition_source_topics),
                "repartition_sink_topics": list(each.repartition_sink_topics),
                "changelog_topics": list(each.changelog_topics),
            }
            for each in group.subtopologies
        ],
        "members": [
            {
                "member": member.member_id,
                "process": member.process_id,
                "epoch": member.epoch,
                "topology_epoch": member.topology_epoch,
                "tasks": _tasks_json(member.assignment),
                "target": _tasks_json(member.target),
            }
            for member in group.members
        ],
    }


def _tasks_json(tasks: StreamsTasks) -> dict[str, list[dict[str, Any]]]:
    return {
        role: [{"subtopology": each, "partition": number} for each, number in listed]
        for role, listed in (
            ("active", tasks.active),
            ("standby", tasks.standby),
            ("warmup", tasks.warmup),
        )
    }


def _epoch(epoch: int, current: int) -> object:
    """Return an epoch, marked if it is behind."""
    return epoch if epoch == current else warn(epoch)


def _same(member: StreamsMember) -> bool:
    return set(member.assignment.active) == set(member.target.active)


def _name(member: StreamsMember) -> str:
    if member.instance_id:
        return f"{member.instance_id} ({member.member_id})"
    return member.member_id


def _tasks(tasks: Iterable[Task]) -> object:
    """Return tasks as words: `0:1,2 1:0` for tasks 0_1, 0_2 and 1_0."""
    numbers: dict[str, list[int]] = {}
    for subtopology, number in sorted(tasks):
        numbers.setdefault(subtopology, []).append(number)
    words = [f"{each}:{','.join(map(str, own))}" for each, own in numbers.items()]
    return " ".join(words) or None
