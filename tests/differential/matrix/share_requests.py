"""One valid request of each API of the share coordinator; see `valid_requests`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.matrix import objects
from differential.matrix.objects import id_of, resolved

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Scene

    Make = Callable[[Scene], dict[str, Any]]

BATCH = {"first_offset": 10, "last_offset": 11, "delivery_state": 2, "delivery_count": 1}


def _of_partition(scene: Scene, group: str, **values: Any) -> dict[str, Any]:
    topic_id = id_of(objects.topic(scene))
    topics = [{"topic_id": topic_id, "partitions": [{"partition": 0, **values}]}]
    return {"group_id": group, "topics": topics}


def _initialize(scene: Scene) -> dict[str, Any]:
    return _of_partition(scene, scene.name("group"), state_epoch=1, start_offset=10)


def _initialized(scene: Scene) -> str:
    """Create a group with state of a share partition that only this scene's requests change."""
    group = scene.name("group")
    initialized = _of_partition(scene, group, state_epoch=1, start_offset=10)
    scene.do(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, lambda side: resolved(initialized, side))
    return group


def _read(scene: Scene) -> dict[str, Any]:
    return _of_partition(scene, _initialized(scene), leader_epoch=0)


def _write(scene: Scene) -> dict[str, Any]:
    count = {"delivery_complete_count": 2} if scene.version >= 1 else {}
    values = {"state_epoch": 1, "leader_epoch": 0, "start_offset": 10, "state_batches": [BATCH]}
    return _of_partition(scene, _initialized(scene), **values, **count)


def _delete(scene: Scene) -> dict[str, Any]:
    return _of_partition(scene, _initialized(scene))


SHARE_STATE: dict[ApiKey, dict[str, Make]] = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: {"initialize share group state": _initialize},
    ApiKey.READ_SHARE_GROUP_STATE: {"read share group state": _read},
    ApiKey.WRITE_SHARE_GROUP_STATE: {"write share group state": _write},
    ApiKey.DELETE_SHARE_GROUP_STATE: {"delete share group state": _delete},
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: {"read share group state summary": _read},
}
