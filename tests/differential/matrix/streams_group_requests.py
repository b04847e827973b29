"""One valid request of each API of streams groups; see `valid_requests`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.matrix import objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Scene

    Make = Callable[[Scene], dict[str, Any]]


def _joining(scene: Scene, group: str) -> dict[str, Any]:
    """Return a first heartbeat; its topology has a source topic and no internal topics."""
    subtopology = {
        "subtopology_id": "0",
        "source_topics": [objects.topic(scene)],
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [{"source_topics": [0]}],
    }
    return {
        "group_id": group,
        "member_id": "a-member",
        "member_epoch": 0,
        "endpoint_information_epoch": -1,
        "instance_id": "an-instance",
        "rack_id": "a-rack",
        "rebalance_timeout_ms": 10_000,
        "topology": {"epoch": 1, "subtopologies": [subtopology]},
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": "a-process",
        "user_endpoint": {"host": "a-host", "port": 1},
        "client_tags": [{"key": "zone", "value": "a-zone"}],
        "task_offsets": [],
        "task_end_offsets": [],
        "shutdown_application": False,
    }


def _heartbeat(scene: Scene) -> dict[str, Any]:
    return _joining(scene, scene.name("group"))


def _with_internal_topics(scene: Scene) -> dict[str, Any]:
    """Return a first heartbeat with internal topics.

    The source topic of the group does not exist, so that no internal topic is created.
    """
    made = _joining(scene, scene.name("group"))
    (subtopology,) = made["topology"]["subtopologies"]
    internal = {
        "name": "an-internal-topic",
        "partitions": 0,
        "replication_factor": 1,
        "topic_configs": [{"key": "cleanup.policy", "value": "compact"}],
    }
    subtopology["source_topics"] = ["no-such-topic"]
    # Kafka fails on an endpoint while topics are missing.
    made["user_endpoint"] = None
    subtopology["state_changelog_topics"] = [internal]
    subtopology["repartition_sink_topics"] = ["an-internal-topic-repartition"]
    subtopology["repartition_source_topics"] = [
        {**internal, "name": "another-internal-topic", "partitions": 2}
    ]
    return made


def _joined(scene: Scene) -> str:
    """Create a group of one member, which only this scene's requests change."""
    group = scene.name("group")
    scene.do(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, _joining(scene, group))
    return group


def _later_heartbeat(scene: Scene) -> dict[str, Any]:
    """Return a heartbeat of a member that has joined, in the epoch of its first response."""
    return {
        "group_id": _joined(scene),
        "member_id": "a-member",
        "member_epoch": 1,
        "endpoint_information_epoch": 0,
        "instance_id": "an-instance",
        "active_tasks": [{"subtopology_id": "0", "partitions": [0]}],
        "standby_tasks": [],
        "warmup_tasks": [],
        "task_offsets": [{"subtopology_id": "0", "partition": 0, "offset": 1}],
        "task_end_offsets": [{"subtopology_id": "0", "partition": 0, "offset": 2}],
    }


def _describe(scene: Scene) -> dict[str, Any]:
    described = {"group_ids": [_joined(scene)], "include_authorized_operations": False}
    return described | ({"include_topology_description": True} if scene.version >= 1 else {})


def _describe_topology(scene: Scene) -> dict[str, Any]:
    topic = objects.topic(scene)
    node = {
        "name": "a-node",
        "node_type": 1,
        "source_topics": [topic],
        "sink_topic": None,
        "stores": ["a-store"],
        "successors": ["another-node"],
    }
    description = {
        "subtopologies": [{"subtopology_id": "0", "nodes": [node]}],
        "global_stores": [{"source": node, "processor": node}],
    }
    return {
        "group_id": _joined(scene),
        "member_id": "a-member",
        "topology_epoch": 1,
        "topology_description": description,
    }


STREAMS_GROUPS: dict[ApiKey, dict[str, Make]] = {
    ApiKey.STREAMS_GROUP_HEARTBEAT: {
        "streams group heartbeat": _heartbeat,
        "streams group heartbeat with internal topics": _with_internal_topics,
        "later streams group heartbeat": _later_heartbeat,
    },
    ApiKey.STREAMS_GROUP_DESCRIBE: {"streams group describe": _describe},
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: {
        "streams group topology description update": _describe_topology
    },
}
