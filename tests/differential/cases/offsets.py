"""Offsets of groups without members: FindCoordinator, OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.case import case
from differential.scene import Scene
from differential.side import Side

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.request import Values

FIND, COMMIT = ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_COMMIT
FETCH, DELETE = ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE


@case(FIND)
def the_coordinator_of_groups(scene: Scene) -> None:
    for key in ("a-group", ""):
        scene.compare({"key": key, "coordinator_keys": [key, "another"]})
    scene.compare({"key": "same", "coordinator_keys": ["same", "same"]})
    scene.compare({"key": "none", "coordinator_keys": []})


@case(FIND)
def invalid_key_types(scene: Scene) -> None:
    for kind in (3, -1, 127):
        scene.compare({"key": "a", "key_type": kind, "coordinator_keys": ["a"]})


@case(FIND, range(6))
def share_keys_before_their_version(scene: Scene) -> None:
    scene.compare({"key": "g:x:0", "key_type": 2, "coordinator_keys": ["g:x:0"]})


@case(FIND, range(6, 7))
def share_keys_of_many_forms(scene: Scene) -> None:
    topic_id = "AAECAwQFBgcICQoLDA0ODw"
    partitions = ("0", "7", "007", "+7", "-1", "2147483647", "2147483648", "", "x", " 1", "1_0")
    keys = [f"group:{topic_id}:{each}" for each in partitions]
    groups = ("a:b", ":", "", " ", "\t", "a:", "\u00e9", "x" * 300)
    keys += [f"{each}:{topic_id}:0" for each in groups]
    topic_ids = ("", topic_id[:-1], f"{topic_id}==", f"{topic_id}A", "!" * 22, "A" * 22, "A" * 25)
    keys += [f"group:{each}:0" for each in topic_ids]
    keys += [":", "::", ":::", "group", f"{topic_id}:0", f"group:{topic_id}:0:", "a:b:c"]
    for key in keys:
        scene.compare({"key_type": 2, "coordinator_keys": [key]})


def commit(group: str, topic: str, **more: Any) -> Callable[[Side], Values]:
    """Return an OffsetCommit of one offset; `more` are fields of the partition or the request."""
    inside = ("partition_index", "committed_offset", "committed_leader_epoch", "committed_metadata")
    partition = {"committed_offset": 7, "committed_metadata": "note"}
    partition |= {key: more.pop(key) for key in inside if key in more}

    def values(side: Side) -> Values:
        named = {"name": topic, "topic_id": _topic_id(side, topic), "partitions": [partition]}
        return {"group_id": group, "topics": [named], **more}

    return values


def fetched(group: str, topic: str, *partitions: int, **more: Any) -> Callable[[Side], Values]:
    """Return an OffsetFetch of a topic's partitions."""

    def values(side: Side) -> Values:
        topics = [
            {"name": topic, "topic_id": _topic_id(side, topic), "partition_indexes": partitions}
        ]
        old = [{"name": topic, "partition_indexes": partitions}]
        groups = [{"group_id": group, "topics": topics}]
        return {"group_id": group, "topics": old, "groups": groups, **more}

    return values


def all_of(group: str) -> Values:
    """Return an OffsetFetch of all offsets of a group."""
    return {"group_id": group, "topics": None, "groups": [{"group_id": group, "topics": None}]}


def _topic_id(side: Side, topic: str) -> object:
    try:
        return side.topic_id(topic)
    except KeyError:
        return b"\x07" * 16


@case(COMMIT)
def an_offset_with_metadata(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.name("group")
    scene.compare(commit(group, topic))
    scene.compare(commit(group, topic, committed_metadata=None, committed_leader_epoch=0))
    scene.compare(commit(group, topic, committed_metadata="", committed_offset=0))
    scene.compare(fetched(group, topic, 0, 1), FETCH, 7)


@case(COMMIT)
def unknown_topics_and_partitions(scene: Scene) -> None:
    topic, group = scene.topic(), scene.name("group")
    scene.compare(commit(group, "absent"))
    scene.compare(commit(group, "a/b"))
    for partition in (1, -1):
        scene.compare(commit(group, topic, partition_index=partition))
    scene.compare(commit(group, "", partition_index=0))


@case(COMMIT)
def invalid_offsets(scene: Scene) -> None:
    topic, group = scene.topic(), scene.name("group")
    for offset in (-1, -2, 1 << 62):
        scene.compare(commit(group, topic, committed_offset=offset))
        scene.compare(fetched(group, topic, 0), FETCH, 7)


@case(COMMIT)
def metadata_that_is_too_long(scene: Scene) -> None:
    topic, group = scene.topic(), scene.name("group")
    for length in (4096, 4097):
        scene.compare(commit(group, topic, committed_metadata="x" * length))


@case(COMMIT, [9])
def a_refused_commit_leaves_no_group(scene: Scene) -> None:
    topic, group = scene.topic(), scene.name("group")
    requested = {"groups": [group]}
    scene.compare(commit(group, topic, committed_metadata="x" * 4097))
    scene.compare(requested, ApiKey.DESCRIBE_GROUPS, 6)
    scene.compare({"groups_names": [group]}, ApiKey.DELETE_GROUPS, 2)
    scene.compare(commit(group, topic, committed_metadata="x" * 4097))
    # Write to each partition of the offsets topic.
    for number in range(12):
        scene.do(COMMIT, 9, commit(f"{group}-{number}", topic))
    scene.compare(requested, ApiKey.DESCRIBE_GROUPS, 6)
    scene.compare(commit(group, topic))
    scene.compare(requested, ApiKey.DESCRIBE_GROUPS, 6)


@case(COMMIT)
def unknown_groups_and_members(scene: Scene) -> None:
    topic, group = scene.topic(), scene.name("group")
    scene.compare(commit("", topic))
    scene.compare(commit(group, topic, generation_id_or_member_epoch=3))
    scene.compare(commit(group, topic, member_id="somebody"))
    scene.compare(commit(group, topic, generation_id_or_member_epoch=3, member_id="somebody"))
    scene.compare(commit(group, topic, generation_id_or_member_epoch=-2))
    scene.compare(commit(group, topic))
    scene.compare(commit(group, topic, generation_id_or_member_epoch=0))
    scene.compare(commit(group, topic, generation_id_or_member_epoch=-1, member_id="somebody"))


@case(COMMIT, range(7, 11))
def an_unknown_instance(scene: Scene) -> None:
    topic, group = scene.topic(), scene.name("group")
    scene.compare(commit(group, topic, group_instance_id="static"))
    scene.compare(
        commit(
            group,
            topic,
            group_instance_id="static",
            member_id="somebody",
            generation_id_or_member_epoch=1,
        )
    )


@case(COMMIT)
def no_topics_or_partitions(scene: Scene) -> None:
    topic, group = scene.topic(), scene.name("group")
    scene.compare({"group_id": group, "topics": []})
    scene.compare(
        lambda side: {
            "group_id": group,
            "topics": [{"name": topic, "topic_id": side.topic_id(topic), "partitions": []}],
        }
    )


@case(COMMIT)
def the_same_partition_twice(scene: Scene) -> None:
    topic, group = scene.topic(), scene.name("group")

    def values(side: Side) -> Values:
        partitions = [
            {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
            for offset in (5, 3)
        ]
        named = {"name": topic, "topic_id": side.topic_id(topic), "partitions": partitions}
        return {"group_id": group, "topics": [named]}

    scene.compare(values)
    scene.compare(fetched(group, topic, 0), FETCH, 7)


@case(COMMIT)
def valid_and_invalid_partitions(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.name("group")

    def values(side: Side) -> Values:
        partitions = [
            {"partition_index": index, "committed_offset": 1, "committed_metadata": text}
            for index, text in ((5, ""), (1, ""), (0, "x" * 5000))
        ]
        named = {"name": topic, "topic_id": side.topic_id(topic), "partitions": partitions}
        other = {"name": "absent", "topic_id": b"\x07" * 16, "partitions": partitions[:1]}
        return {"group_id": group, "topics": [other, named]}

    scene.compare(values)


@case(FETCH)
def committed_offsets(scene: Scene) -> None:
    topic, group = scene.topic(3), scene.name("group")
    scene.do(COMMIT, 8, commit(group, topic))
    scene.do(COMMIT, 8, commit(group, topic, partition_index=2, committed_leader_epoch=0))
    scene.compare(fetched(group, topic, 0, 1, 2))
    scene.compare(fetched(group, topic, 2, 9, -1))
    scene.compare(fetched(group, topic))
    scene.compare(fetched(group, topic, 0, 0))
    scene.compare(fetched(group, topic, 0, require_stable=True))


@case(FETCH, range(2, 11))
def all_offsets_of_a_group(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.name("group")
    scene.compare(all_of(group))
    scene.do(COMMIT, 8, commit(group, topic))
    scene.compare(all_of(group))


@case(FETCH)
def unknown_groups_and_topics(scene: Scene) -> None:
    topic, group = scene.topic(), scene.name("group")
    scene.compare(fetched(group, topic, 0))
    scene.compare(fetched(group, "absent", 0))
    scene.compare(fetched("", topic, 0))
    scene.compare({"group_id": group, "topics": [], "groups": [{"group_id": group, "topics": []}]})


@case(FETCH, range(8, 11))
def several_groups(scene: Scene) -> None:
    topic, group = scene.topic(), scene.name("group")
    scene.do(COMMIT, 8, commit(group, topic))
    groups = [{"group_id": name, "topics": None} for name in ("other", group, "other")]
    scene.compare({"groups": groups})
    scene.compare({"groups": []})


@case(FETCH, range(9, 11))
def unknown_members(scene: Scene) -> None:
    topic, group = scene.topic(), scene.name("group")
    scene.do(COMMIT, 8, commit(group, topic))
    for member, epoch in (("somebody", 1), ("somebody", -1), ("", 3), ("", 0), (None, 5)):
        requested = {"group_id": group, "topics": None, "member_id": member, "member_epoch": epoch}
        scene.compare({"groups": [requested]})


@case(DELETE)
def offsets_are_deleted(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.name("group")

    def delete(name: str, *partitions: int, of: str = group) -> Values:
        indexes = [{"partition_index": index} for index in partitions]
        return {"group_id": of, "topics": [{"name": name, "partitions": indexes}]}

    scene.compare(delete(topic, 0))
    scene.compare(delete(topic, 0, of=""))
    scene.do(COMMIT, 8, commit(group, topic))
    scene.compare(delete(topic, 1))
    scene.compare(delete(topic, 9))
    scene.compare(delete("absent", 0))
    scene.compare(delete(topic))
    scene.compare({"group_id": group, "topics": []})
    scene.compare(delete(topic, 0))
    scene.compare(fetched(group, topic, 0), FETCH, 7)
    scene.compare(delete(topic, 0))
