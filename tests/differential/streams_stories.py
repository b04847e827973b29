"""Stories of streams groups: sequences of states and requests of `StreamsMembers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.scene import exchange
from differential.streams_members import (
    DESCRIPTION,
    HEARTBEAT,
    INTERNAL,
    counting,
    stateless,
    tasks,
)
from waiting import eventually

if TYPE_CHECKING:
    from differential.streams_members import StreamsMembers


def one_member(members: StreamsMembers, a: str, _b: str) -> None:
    members.join("m1", stateless(a), rack_id="r", client_tags=[{"key": "zone", "value": "z"}])
    members.describe()
    members.describe(version=0)
    members.heartbeat("m1", 2)
    members.heartbeat("m1", 2, version=0)
    owned = {"active_tasks": tasks(s0=[0, 1, 2]), "standby_tasks": [], "warmup_tasks": []}
    members.heartbeat("m1", 2, **owned)
    members.heartbeat("m1", 1)
    members.heartbeat("m1", 1, **owned)
    members.heartbeat("m1", 9)
    members.heartbeat("m2", 2)
    members.listed("streams")
    members.listed("STREAMS", "classic")
    members.listed("consumer")
    members.heartbeat("m1", -1)
    members.describe()
    members.listed()
    members.heartbeat("m1", -1)
    members.heartbeat("m1", 2)
    members.heartbeat("m1", 0)


def tasks_move(members: StreamsMembers, a: str, _b: str) -> None:
    members.join("m1", stateless(a))
    members.join("m2", stateless(a), process_id="other")
    members.heartbeat("m1", 2)
    members.heartbeat("m2", 3)
    members.describe()
    # The second member gets a task only after the first member has released it.
    both = {"standby_tasks": [], "warmup_tasks": []}
    members.heartbeat("m1", 2, active_tasks=tasks(s0=[0, 1, 2]), **both)
    target = _target(members, "m1")
    members.heartbeat("m1", 2, active_tasks=tasks(s0=target), **both)
    members.heartbeat("m2", 3)
    members.describe()
    members.heartbeat("m2", 3)
    members.heartbeat("m2", -1)
    members.heartbeat("m1", 3)
    members.heartbeat("m1", 4)
    members.describe()
    members.heartbeat("m1", -1)


def _target(members: StreamsMembers, member: str) -> list[int]:
    """Return the active tasks of a member's target assignment."""
    response = exchange(
        members.side, ApiKey.STREAMS_GROUP_DESCRIBE, 0, {"group_ids": [members.group]}
    )
    (found,) = (each for each in response.groups[0].members if each.member_id == member)
    (tasks_of_one,) = found.target_assignment.active_tasks
    return sorted(tasks_of_one.partitions)


def internal_topics(members: StreamsMembers, a: str, _b: str) -> None:
    """The coordinator creates the internal topics. The number of epochs for that varies."""
    members.has_records = False
    members.join("m1", counting(members.group, a))
    members.await_topics("m1")
    names = [f"{members.group}-{each}" for each in INTERNAL]
    topics = exchange(
        members.side, ApiKey.METADATA, 9, {"topics": [{"name": n} for n in names]}
    ).topics
    members.lines.append(str([(each.name, len(each.partitions)) for each in topics]))
    for name in names:
        keys = ["retention.ms", "cleanup.policy"]
        requested = {"resource_type": 2, "resource_name": name, "configuration_keys": keys}
        response = exchange(members.side, ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [requested]})
        response.results[0].configs.sort(key=lambda each: each.name)
        members.note(response)
    members.heartbeat("m1", -1)


def stores(members: StreamsMembers, a: str, _b: str) -> None:
    """Subtopologies with a repartition topic and a store; members with standbys and warm-ups."""
    members.create_internal_topics(3)
    members.join("m1", counting(members.group, a))
    members.heartbeat("m1", members.epochs["m1"])
    members.set_group_configs(streams_num_standby_replicas="1")
    members.join("m2", counting(members.group, a), process_id="other")
    members.heartbeat("m1", members.epochs["m1"])
    members.describe()
    members.heartbeat("m2", members.epochs["m2"])
    members.heartbeat("m1", -1)
    members.heartbeat("m2", members.epochs["m2"])
    members.heartbeat("m2", members.epochs["m2"])
    members.describe()


def standbys(members: StreamsMembers, a: str, _b: str) -> None:
    members.create_internal_topics(3)
    members.set_group_configs(streams_num_standby_replicas="1")
    members.join("m1", counting(members.group, a))
    members.join("m2", counting(members.group, a), process_id="other")
    members.heartbeat("m1", members.epochs["m1"])
    members.describe()
    members.set_group_configs(streams_num_standby_replicas="0")
    members.heartbeat("m1", members.epochs["m1"])
    members.describe()


def missing_topics(members: StreamsMembers, a: str, b: str) -> None:
    members.join("m1", stateless(a, f"{a}-later"))
    members.heartbeat("m1", 1)
    members.describe()
    members.create(f"{a}-later", 2)
    members.await_topics("m1")
    members.heartbeat("m1", -1)
    members.join("m1", stateless(b))


def wrong_partitions(members: StreamsMembers, a: str, b: str) -> None:
    """The two topics of a join must have the same number of partitions."""
    joined = stateless(a, b)
    joined["subtopologies"][0]["copartition_groups"] = [{"source_topics": [0, 1]}]
    members.join("m1", joined)
    members.heartbeat("m1", 1)
    members.describe()
    members.heartbeat("m1", -1)


def topologies(members: StreamsMembers, a: str, b: str) -> None:
    members.join("m1", stateless(a))
    members.join("m2", stateless(b))
    members.join("m2", stateless(b, epoch=1))
    members.describe()
    members.heartbeat("m1", 2)
    members.join("m3", stateless(a))
    members.join("m3", stateless(a, b, epoch=2))
    members.describe()
    members.join("m4", None)
    for member in ("m1", "m2", "m3"):
        members.heartbeat(member, -1)


def static_members(members: StreamsMembers, a: str, _b: str) -> None:
    members.join("m1", stateless(a), instance_id="i")
    members.join("m2", stateless(a), instance_id="i")
    members.heartbeat("m1", 2, instance_id="other")
    members.heartbeat("m1", -2, instance_id="i")
    members.describe()
    members.heartbeat("m1", 2, instance_id="i")
    members.join("m2", stateless(a), instance_id="i")
    members.heartbeat("m2", 2, instance_id="i")
    members.heartbeat("m1", 2, instance_id="i")
    members.heartbeat("m3", 2, instance_id="unknown")
    members.heartbeat("m2", -2)
    members.describe()
    leave = [{"member_id": "", "group_instance_id": "i"}]
    members.do(ApiKey.LEAVE_GROUP, 5, group_id=members.group, members=leave)
    members.heartbeat("m2", -1, instance_id="i")
    members.describe()


def refusals(members: StreamsMembers, a: str, _b: str) -> None:
    members.join("", stateless(a))
    members.join(" ", stateless(a))
    members.join("m" * 37, stateless(a))
    members.join("m", None)
    members.join("m", stateless())
    members.join("m", {"epoch": 0, "subtopologies": []})
    members.join("m", stateless(a), rebalance_timeout_ms=-1)
    members.join("m", stateless(a), active_tasks=None)
    members.join("m", stateless(a), standby_tasks=None)
    members.join("m", stateless(a), warmup_tasks=None)
    members.join("m", stateless(a), active_tasks=tasks(s0=[0]))
    members.join("m", stateless(a), process_id=None)
    members.join("m", stateless(a), process_id="")
    members.join("m", stateless(a), instance_id="")
    members.join("m", stateless(a), rack_id="")
    members.join("m", stateless(a), client_tags=None)
    members.join("m", stateless(a), user_endpoint={"host": "", "port": 0})
    members.heartbeat("m", 1, topology=stateless(a))
    members.heartbeat("m", -2)
    members.heartbeat("m", -3)
    members.heartbeat("m", 3)
    members.heartbeat("m", -1)
    members.do(HEARTBEAT, 1, group_id="", member_id="m", member_epoch=0)
    members.describe()
    members.describe("", "", members.group)


def invalid_topologies(members: StreamsMembers, a: str, _b: str) -> None:
    def changed(**fields: Any) -> dict[str, Any]:
        made = counting(members.group, a)
        made["subtopologies"][1] |= fields
        return made

    internal = {"name": "x", "partitions": 0, "replication_factor": 0, "topic_configs": []}
    for name in ("", "a/b", "__consumer_offsets", "x" * 250):
        members.join("m", changed(repartition_source_topics=[{**internal, "name": name}]))
        members.join("m", changed(state_changelog_topics=[{**internal, "name": name}]))
    members.join("m", changed(state_changelog_topics=[{**internal, "partitions": 3}]))
    members.describe()
    # None of the refused requests has created the group.
    members.join("m", stateless(a))
    members.join("m", changed(source_topic_regex=["a.*"]))
    members.describe()


def wrong_tasks(members: StreamsMembers, a: str, _b: str) -> None:
    members.join("m1", stateless(a))
    empty = {"standby_tasks": [], "warmup_tasks": []}
    members.heartbeat("m1", 2, active_tasks=tasks(s0=[0, 7]), **empty)
    members.heartbeat("m1", 2, active_tasks=tasks(s9=[0]), **empty)
    members.heartbeat("m1", 2, active_tasks=tasks(s0=[0]))
    members.heartbeat("m1", 2, active_tasks=[], **empty)
    members.heartbeat("m1", 2, active_tasks=tasks(s0=[0, 0]), **empty)
    members.heartbeat("m1", 1, active_tasks=tasks(s0=[0]), **empty)
    members.describe()


def changed_member(members: StreamsMembers, a: str, _b: str) -> None:
    members.join("m1", stateless(a), rack_id="r", user_endpoint={"host": "h", "port": 1})
    members.heartbeat("m1", 2, endpoint_information_epoch=-1)
    members.heartbeat("m1", 2, endpoint_information_epoch=0)
    members.heartbeat("m1", 2, endpoint_information_epoch=1)
    members.heartbeat("m1", members.epochs["m1"], rack_id="s")
    members.heartbeat("m1", members.epochs["m1"], process_id="other")
    members.describe()
    members.heartbeat("m1", members.epochs["m1"], user_endpoint={"host": "k", "port": 2})
    members.heartbeat("m1", members.epochs["m1"], client_tags=[{"key": "zone", "value": "y"}])
    members.heartbeat("m1", members.epochs["m1"], rebalance_timeout_ms=5_000)
    offsets = [{"subtopology_id": "0", "partition": 0, "offset": 7}]
    members.heartbeat("m1", members.epochs["m1"], task_offsets=offsets, task_end_offsets=offsets)
    members.describe()
    members.join("m1", stateless(a))
    members.describe()


def shutdown_application(members: StreamsMembers, a: str, _b: str) -> None:
    members.join("m1", stateless(a))
    members.join("m2", stateless(a))
    members.heartbeat("m1", 2, shutdown_application=True)
    members.heartbeat("m2", 3)
    members.describe()
    members.heartbeat("m1", -1)
    members.heartbeat("m2", 3)
    members.heartbeat("m2", -1)
    members.join("m3", stateless(a))


def topology_descriptions(members: StreamsMembers, a: str, _b: str) -> None:
    node = {"name": "source", "node_type": 1, "source_topics": [a]}
    described = {"subtopologies": [{"subtopology_id": "0", "nodes": [node]}]}
    update = {"topology_epoch": 0, "topology_description": described}

    def push(member: str = "m1", **fields: Any) -> None:
        values = {"group_id": members.group, "member_id": member, **update, **fields}
        members.do(DESCRIPTION, 0, **values)

    push()
    members.join("m1", stateless(a))
    push()
    push("m2")
    push(topology_epoch=1)
    push(group_id="")
    push("")
    members.describe(include_topology_description=True)
    members.describe(include_topology_description=False)
    members.heartbeat("m1", 2)


def deleted_group(members: StreamsMembers, a: str, _b: str) -> None:
    members.join("m1", stateless(a))
    members.do(ApiKey.DELETE_GROUPS, 2, groups_names=[members.group])
    members.do(ApiKey.DESCRIBE_GROUPS, 6, groups=[members.group])
    members.heartbeat("m1", -1)
    members.do(ApiKey.DELETE_GROUPS, 2, groups_names=[members.group])
    members.describe()
    members.join("m1", stateless(a))
    members.heartbeat("m1", -1)


def timed_out(members: StreamsMembers, a: str, _b: str) -> None:
    """The first member stops its heartbeats, and the second one does not release a task in time."""
    members.set_group_configs(streams_session_timeout_ms="45000")
    members.join("m1", stateless(a), rebalance_timeout_ms=100)
    members.join("m2", stateless(a), process_id="other")
    members.heartbeat("m2", 3)
    members.heartbeat("m1", 2)
    _await_members(members, 1)
    members.heartbeat("m1", 2)
    members.heartbeat("m2", 3)
    members.heartbeat("m2", 4)
    members.describe()
    members.heartbeat("m2", -1)


def _await_members(members: StreamsMembers, count: int) -> None:
    def has_count() -> bool:
        requested = {"group_ids": [members.group]}
        (group,) = exchange(members.side, ApiKey.STREAMS_GROUP_DESCRIBE, 0, requested).groups
        return len(group.members) == count

    eventually(has_count, f"{members.side.name}: not {count} members")


STORIES = (
    one_member,
    tasks_move,
    internal_topics,
    stores,
    standbys,
    missing_topics,
    wrong_partitions,
    topologies,
    static_members,
    refusals,
    invalid_topologies,
    wrong_tasks,
    changed_member,
    shutdown_application,
    topology_descriptions,
    deleted_group,
    timed_out,
)
