"""Classic groups: joining, syncing, heartbeats, leaving, and how they are described and listed."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.case import case
from differential.scene import Scene, exchange
from differential.side import Side

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.request import Values

JOIN, SYNC = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP
HEARTBEAT, LEAVE = ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP
DESCRIBE, LIST, DELETE = ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS

# Long enough that no session or rebalance times out, even if the machine pauses.
TIMEOUT_MS = 300_000


def joining(group: str, member: str = "", **more: Any) -> Callable[[Side], Values]:
    """Return a JoinGroup. A member with a remembered id sends that id."""

    def values(side: Side) -> Values:
        return {
            "group_id": group,
            "member_id": id_of(side, member),
            "session_timeout_ms": TIMEOUT_MS,
            "rebalance_timeout_ms": TIMEOUT_MS,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"topics"}],
            **more,
        }

    return values


def id_of(side: Side, member: str) -> str:
    try:
        return side.text(member)
    except KeyError:
        return member


def join_first_member(scene: Scene, group: str, member: str = "member", **more: Any) -> None:
    """Join a group as its only member, with a second request if the first one returns an id."""
    responses = scene.do(JOIN, 9, joining(group, **more))
    if responses[0].error_code:
        scene.remember(member, *(response.member_id for response in responses))
        responses = scene.do(JOIN, 9, joining(group, member, **more))
    assert all(response.error_code == 0 for response in responses), responses
    scene.remember(member, *(response.member_id for response in responses))


def syncing(group: str, member: str, generation: int = 1, **more: Any) -> Callable[[Side], Values]:
    return lambda side: {
        "group_id": group,
        "generation_id": generation,
        "member_id": id_of(side, member),
        "protocol_type": "consumer",
        "protocol_name": "range",
        **more,
    }


def assigning(group: str, member: str, generation: int = 1) -> Callable[[Side], Values]:
    return lambda side: {
        **syncing(group, member, generation)(side),
        "assignments": [{"member_id": id_of(side, member), "assignment": b"partitions"}],
    }


def heartbeat_of(
    group: str, member: str, generation: int = 1, **more: Any
) -> Callable[[Side], Values]:
    return lambda side: {
        "group_id": group,
        "generation_id": generation,
        "member_id": id_of(side, member),
        **more,
    }


def leaving(group: str, member: str, instance: str | None = None) -> Callable[[Side], Values]:
    return lambda side: {
        "group_id": group,
        "member_id": id_of(side, member),
        "members": [{"member_id": id_of(side, member), "group_instance_id": instance}],
    }


def stable(scene: Scene) -> str:
    """Create a stable group of one member."""
    group = scene.name("group")
    join_first_member(scene, group)
    scene.do(SYNC, 5, assigning(group, "member"))
    return group


@case(JOIN)
def a_first_member(scene: Scene) -> None:
    group = scene.name("group")
    responses = scene.do(JOIN, scene.version, joining(group))
    scene.remember("member", *(response.member_id for response in responses))
    scene.note(*({"error_code": response.error_code} for response in responses))
    scene.compare(joining(group, "member"))
    scene.compare(joining(group, "member"))
    scene.compare(joining(group, "member", protocols=[{"name": "other", "metadata": b"x"}]))


@case(JOIN)
def joins_that_are_refused(scene: Scene) -> None:
    group = scene.name("group")
    scene.compare(joining(""))
    scene.compare(joining(group, "somebody"))
    for session_timeout_ms in (0, 100, -1, 1_900_000):
        scene.compare(joining(group, session_timeout_ms=session_timeout_ms))
    scene.compare(joining(group, protocols=[]))
    scene.compare(joining(group, protocol_type=""))


@case(JOIN)
def protocols_that_do_not_match_the_group(scene: Scene) -> None:
    group = stable(scene)
    scene.compare(joining(group, protocol_type="connect"))
    scene.compare(joining(group, protocols=[{"name": "sticky", "metadata": b""}]))
    scene.compare(joining(group, "somebody"))


@case(JOIN, range(5, 10))
def a_static_member(scene: Scene) -> None:
    group = scene.name("group")
    responses = scene.do(JOIN, scene.version, joining(group, group_instance_id="one"))
    scene.remember("member", *(response.member_id for response in responses))
    scene.note(*({"error": a.error_code, "leader": a.leader == a.member_id} for a in responses))
    scene.do(SYNC, 5, assigning(group, "member"))
    responses = scene.do(JOIN, scene.version, joining(group, group_instance_id="one"))
    scene.remember("again", *(response.member_id for response in responses))
    scene.note(*({"error": a.error_code, "generation": a.generation_id} for a in responses))
    scene.compare(joining(group, "member", group_instance_id="one"))
    scene.compare(joining(group, "somebody", group_instance_id="one"))
    scene.compare(joining(group, "somebody", group_instance_id="two"))
    scene.compare(heartbeat_of(group, "member", group_instance_id="one"), HEARTBEAT, 4)
    scene.compare(heartbeat_of(group, "again", group_instance_id="one"), HEARTBEAT, 4)
    scene.compare(leaving(group, "", "one"), LEAVE, 5)


@case(SYNC)
def assignments_are_given(scene: Scene) -> None:
    group = scene.name("group")
    join_first_member(scene, group)
    scene.compare(assigning(group, "member"))
    scene.compare(syncing(group, "member"))
    scene.compare(assigning(group, "member"))


@case(SYNC)
def syncs_that_are_refused(scene: Scene) -> None:
    group = stable(scene)
    for generation in (0, 2, -1):
        scene.compare(syncing(group, "member", generation))
    scene.compare(syncing(group, "somebody"))
    scene.compare(syncing(group, ""))
    scene.compare(syncing("", "member"))
    scene.compare(syncing(scene.name("absent"), "member"))
    scene.compare(syncing(group, "member", protocol_type="connect"))
    scene.compare(syncing(group, "member", protocol_name="sticky"))
    scene.compare(syncing(group, "member", protocol_type=None, protocol_name=None))
    scene.compare(syncing(group, "member", group_instance_id="one"))


@case(HEARTBEAT)
def heartbeats(scene: Scene) -> None:
    group = stable(scene)
    scene.compare(heartbeat_of(group, "member"))
    for generation in (0, 2, -1):
        scene.compare(heartbeat_of(group, "member", generation))
    scene.compare(heartbeat_of(group, "somebody"))
    scene.compare(heartbeat_of(group, ""))
    scene.compare(heartbeat_of("", "member"))
    scene.compare(heartbeat_of(scene.name("absent"), "member"))
    scene.compare(heartbeat_of(group, "member", group_instance_id="one"))


@case(HEARTBEAT)
def a_heartbeat_before_the_assignment(scene: Scene) -> None:
    group = scene.name("group")
    join_first_member(scene, group)
    scene.compare(heartbeat_of(group, "member"))


@case(LEAVE)
def members_leave(scene: Scene) -> None:
    group = stable(scene)
    scene.compare(leaving(group, "somebody"))
    scene.compare(leaving(group, ""))
    scene.compare(leaving("", "member"))
    scene.compare(leaving(scene.name("absent"), "member"))
    scene.compare(leaving(group, "member", "one"))
    scene.compare(leaving(group, "member"))
    scene.compare(leaving(group, "member"))
    scene.compare({"groups": [group]}, DESCRIBE, 5)


@case(LEAVE, range(3, 6))
def several_leave_at_once(scene: Scene) -> None:
    group = stable(scene)
    scene.compare(
        lambda side: {
            "group_id": group,
            "members": [
                {"member_id": "somebody"},
                {"member_id": side.text("member"), "reason": "enough"},
                {"member_id": side.text("member")},
                {"member_id": "", "group_instance_id": "unknown"},
            ],
        }
    )
    scene.compare({"group_id": group, "members": []})


@case(DESCRIBE)
def groups_in_each_state(scene: Scene) -> None:
    group = scene.name("group")
    scene.compare({"groups": [group]})
    join_first_member(scene, group)
    scene.compare({"groups": [group]})
    scene.do(SYNC, 5, assigning(group, "member"))
    scene.compare({"groups": [group], "include_authorized_operations": True})
    scene.do(LEAVE, 5, leaving(group, "member"))
    scene.compare({"groups": [group, "", group]})
    scene.compare({"groups": []})


@case(LIST)
def listed_groups(scene: Scene) -> None:
    group = stable(scene)
    for filters in (
        {},
        {"states_filter": ["Stable"]},
        {"states_filter": ["stable", "no such state"]},
        {"states_filter": ["Empty"]},
        {"types_filter": ["classic"]},
        {"types_filter": ["consumer"]},
        {"types_filter": ["no such type"]},
    ):
        responses = scene.do(LIST, scene.version, filters)
        scene.note(*(listing(response, group) for response in responses))


def listing(response: Any, group: str) -> dict[str, object]:
    """Return the entry of one group in a list; other groups may appear and disappear."""
    found = [each for each in response.groups if each.group_id == group]
    return {"errors": response.error_code} | {
        f"{index} {name}": getattr(each, name)
        for index, each in enumerate(found)
        for name in ("protocol_type", "group_state", "group_type")
    }


@case(DELETE)
def groups_are_deleted(scene: Scene) -> None:
    group, other = stable(scene), scene.name("absent")
    scene.compare({"groups_names": [group]})
    scene.do(LEAVE, 5, leaving(group, "member"))
    scene.compare({"groups_names": [other]})
    scene.compare({"groups_names": [""]})
    scene.compare({"groups_names": []})
    scene.compare({"groups_names": [group]})
    scene.compare({"groups_names": [group]})


def subscribed(topic: str) -> bytes:
    """Return the subscription of a consumer to one topic."""
    name = topic.encode()
    return struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)


@case(JOIN)
def a_second_member_makes_the_first_join_again(scene: Scene) -> None:
    group = stable(scene)
    responses = scene.do(JOIN, 9, joining(group))
    scene.remember("second", *(response.member_id for response in responses))
    scene.send(joining(group, "second"), on="second")
    scene.until(
        lambda side: (
            exchange(side, HEARTBEAT, 4, heartbeat_of(group, "member")(side)).error_code != 0
        )
    )
    scene.compare(heartbeat_of(group, "member"), HEARTBEAT, 4)
    scene.compare(syncing(group, "member"), SYNC, 5)
    scene.compare({"groups": [group]}, DESCRIBE, 5)
    scene.compare(joining(group, "member"))
    scene.compare_response(on="second")
    scene.send(syncing(group, "second", 2), SYNC, 5, on="second")
    scene.compare(assigning(group, "member", 2), SYNC, 5)
    scene.compare_response(SYNC, 5, on="second")
    scene.compare(heartbeat_of(group, "second", 1), HEARTBEAT, 4)
    scene.compare(heartbeat_of(group, "second", 2), HEARTBEAT, 4)
    scene.compare(leaving(group, "second"), LEAVE, 5)
    scene.compare(heartbeat_of(group, "member", 2), HEARTBEAT, 4)


@case(ApiKey.OFFSET_COMMIT)
def members_commit_with_their_generation(scene: Scene) -> None:
    topic, group = scene.topic(), stable(scene)

    def commit(member: str, generation: int, **more: Any) -> Callable[[Side], Values]:
        return lambda side: {
            "group_id": group,
            "member_id": id_of(side, member),
            "generation_id_or_member_epoch": generation,
            "topics": [
                {
                    "name": topic,
                    "topic_id": side.topic_id(topic),
                    "partitions": [{"committed_offset": 3, "committed_metadata": ""}],
                }
            ],
            **more,
        }

    scene.compare(commit("member", 1))
    for generation in (0, 2, -1):
        scene.compare(commit("member", generation))
    scene.compare(commit("somebody", 1))
    scene.compare(commit("", 1))
    scene.compare(commit("", -1))
    scene.compare(commit("member", 1, group_instance_id="one"))


# Versions that are not true, and subscriptions that end early.
UNUSUAL_SUBSCRIPTIONS: dict[str, Callable[[bytes], bytes]] = {
    "a version whose fields are missing": lambda data: b"\0\1" + data[2:],
    "the latest version without its fields": lambda data: b"\0\3" + data[2:],
    "an unknown version": lambda data: b"\0\x63" + data[2:],
    "a negative version": lambda data: b"\xff\xff" + data[2:],
    "more bytes than version 0 has": lambda data: data + b"more",
    "no user data": lambda data: data[:-4],
    "only a version": lambda data: data[:2],
    "half a version": lambda data: data[:1],
    "nothing": lambda _: b"",
}


@case(ApiKey.OFFSET_DELETE)
def topics_of_unusual_subscriptions(scene: Scene) -> None:
    topic, other = scene.topic(), scene.topic()
    for number, (label, change) in enumerate(UNUSUAL_SUBSCRIPTIONS.items()):
        scene.label = label
        group, member = scene.name(f"group-{number}"), f"member-{number}"
        protocols = [{"name": "range", "metadata": change(subscribed(topic))}]
        join_first_member(scene, group, member, protocols=protocols)
        scene.do(SYNC, 5, assigning(group, member))
        topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in (topic, other)]
        scene.compare({"group_id": group, "topics": topics})


@case(ApiKey.OFFSET_DELETE)
def offsets_of_a_topic_that_is_read_stay(scene: Scene) -> None:
    topic, other, group = scene.topic(), scene.topic(), scene.name("group")
    join_first_member(scene, group, protocols=[{"name": "range", "metadata": subscribed(topic)}])
    scene.do(SYNC, 5, assigning(group, "member"))
    for name in (topic, other):
        named = {"name": name, "partitions": [{"partition_index": 0}]}
        scene.compare({"group_id": group, "topics": [named]})
