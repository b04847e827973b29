"""One valid request of each API of share groups; see `valid_requests`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.matrix import objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Scene

    Make = Callable[[Scene], dict[str, Any]]


def _joining(scene: Scene, group: str) -> dict[str, Any]:
    return {
        "group_id": group,
        "member_id": "a-member",
        "member_epoch": 0,
        "rack_id": "a-rack",
        "subscribed_topic_names": [objects.topic(scene)],
    }


def _heartbeat(scene: Scene) -> dict[str, Any]:
    return _joining(scene, scene.name("group"))


def _describe(scene: Scene) -> dict[str, Any]:
    group = scene.name("group")
    scene.do(ApiKey.SHARE_GROUP_HEARTBEAT, 1, _joining(scene, group))
    return {"group_ids": [group], "include_authorized_operations": False}


def _altered(scene: Scene, group: str) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "start_offset": 0}]
    return {
        "group_id": group,
        "topics": [{"topic_name": objects.topic(scene), "partitions": partitions}],
    }


def _alter(scene: Scene) -> dict[str, Any]:
    return _altered(scene, scene.name("group"))


def _with_offset(scene: Scene) -> str:
    """Create a group without members, with an offset that only this scene's requests change."""
    group = scene.name("group")
    scene.do(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, _altered(scene, group))
    return group


def described_offsets(scene: Scene) -> dict[str, Any]:
    """Return a request for the offset of a group without members."""
    topics = [{"topic_name": objects.topic(scene), "partitions": [0]}]
    return {"groups": [{"group_id": _with_offset(scene), "topics": topics}]}


def _delete_offsets(scene: Scene) -> dict[str, Any]:
    topics = [{"topic_name": objects.topic(scene)}]
    return {"group_id": _with_offset(scene), "topics": topics}


SHARE_GROUPS: dict[ApiKey, dict[str, Make]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: {"share group heartbeat": _heartbeat},
    ApiKey.SHARE_GROUP_DESCRIBE: {"share group describe": _describe},
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: {"describe share group offsets": described_offsets},
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: {"alter share group offsets": _alter},
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: {"delete share group offsets": _delete_offsets},
}
