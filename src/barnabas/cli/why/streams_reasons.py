"""Reasons why the members of a streams group have no tasks, or not all of them (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.why.facts import listed, member_name
from barnabas.cli.why.reasons import Reason, note, wrong

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.client.admin.streams_groups import StreamsGroupDescription, StreamsMember, Task


def streams_reasons(group: StreamsGroupDescription, missing: Collection[str]) -> list[Reason]:
    """Return the reasons for the state of a streams group that has members.

    Args:
        group: the group with its topology and tasks.
        missing: the topics of the topology that do not exist.
    """
    if group.topology_epoch < 0:
        return [
            note(
                "no-topology",
                "no member has sent the topology yet, so there are no tasks",
                "repeat this command; if the state stays the same, read the application's log",
            )
        ]
    reasons = _topic_reasons(group, missing)
    if not reasons and group.state == "NotReady":
        reasons.append(
            wrong(
                "topics-do-not-fit",
                "all topics of the topology exist, but their partitions do not fit it, so no tasks "
                "are assigned",
                "the application's log names the topics: copartitioned topics must have equal "
                "numbers of partitions, and internal topics the number that the topology needs",
            )
        )
    for member in group.members:
        if member.topology_epoch < group.topology_epoch:
            reasons.append(_stale(group, member))
    if group.state != "NotReady":
        reasons += _task_reasons(group)
    return reasons


def _topic_reasons(group: StreamsGroupDescription, missing: Collection[str]) -> list[Reason]:
    """Return reasons for missing topics. Without source topics no internal topic is created."""
    sources = {topic for each in group.subtopologies for topic in each.source_topics}
    reasons = [
        wrong(
            "source-topic-missing",
            f"the topology reads {topic}, but this topic does not exist, so no tasks are assigned",
            f"`{Advice.CREATE_TOPIC.text(topic=topic)}`, or check the name",
        )
        for topic in sorted(set(missing) & sources)
    ]
    internal = sorted(set(missing) - sources)
    if internal and not reasons:
        reasons.append(
            wrong(
                "internal-topic-missing",
                f"internal topics are missing, so no tasks are assigned: {listed(internal)}",
                "the coordinator creates them when a member sends a heartbeat; if they stay "
                "missing, the application's log has the error (its principal needs the right to "
                "create topics)",
            )
        )
    return reasons


def _stale(group: StreamsGroupDescription, member: StreamsMember) -> Reason:
    return wrong(
        "topology-stale",
        f"{member_name(member)} has topology epoch {member.topology_epoch}, the group has "
        f"{group.topology_epoch}: it gets no new tasks",
        "start it again with the current version of the application",
    )


def _task_reasons(group: StreamsGroupDescription) -> list[Reason]:
    """Return reasons for members that do not have their target tasks, or have no tasks."""
    owners = {task: member for member in group.members for task in member.assignment.active}
    reasons = []
    for member in group.members:
        waiting = [task for task in member.target.active if owners.get(task, member) != member]
        for owner in {owners[task].member_id: owners[task] for task in waiting}.values():
            held = [task for task in waiting if owners[task] == owner]
            reasons.append(
                note(
                    "task-not-released",
                    f"{member_name(member)} waits for {listed(map(_word, held))}, which "
                    f"{member_name(owner)} has not released yet",
                    "it releases them after it has committed and closed them, or is removed after "
                    "max.poll.interval.ms",
                )
            )
        if not waiting and 0 <= member.epoch < group.epoch:
            reasons.append(
                note(
                    "member-behind",
                    f"{member_name(member)} is at epoch {member.epoch} of {group.epoch}: "
                    "it has not received or taken up its new tasks",
                    "it receives them with its next heartbeat",
                )
            )
    idle = [each for each in group.members if not _has_tasks(each)]
    if idle and group.state == "Stable":
        reasons.append(
            note(
                "members-idle",
                f"{len(idle)} of {len(group.members)} members have no tasks "
                f"({listed(map(member_name, idle))}): there are fewer tasks than members",
                "stop members, or add partitions to the source topics of a new application",
            )
        )
    return reasons


def _has_tasks(member: StreamsMember) -> bool:
    return any(
        (
            member.assignment.active,
            member.assignment.standby,
            member.assignment.warmup,
            member.target.active,
            member.target.standby,
        )
    )


def _word(task: Task) -> str:
    return f"{task[0]}_{task[1]}"
