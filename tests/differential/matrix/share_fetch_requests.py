"""One valid request of each API of share consumers; see `valid_requests`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.matrix import objects
from differential.matrix.objects import id_of
from differential.share_fetches import LOADING_MS_MAX, LOCKED_MS_MAX, ShareMember, initialize

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Scene

    Make = Callable[[Scene], dict[str, Any]]

ACCEPT = 1


def _topics(topic: str, *batches: dict[str, Any]) -> list[dict[str, Any]]:
    where = {"partition_index": 0, "acknowledgement_batches": list(batches)}
    return [{"topic_id": id_of(topic), "partitions": [where]}]


def _loaded(scene: Scene, topic: str) -> ShareMember:
    """Return a member of a new group that has acquired records of both loaded share partitions."""
    group = scene.name("group")
    for partition in (1, 0):
        initialize(scene, group, topic, partition)
        member = ShareMember(scene, group, topic, "a member")
        values = member.fetch_values(
            partition=partition, max_wait_ms=LOADING_MS_MAX, min_bytes=1, max_records=1
        )
        responses = scene.do(ApiKey.SHARE_FETCH, 2, values)
        assert all(each.responses[0].partitions[0].acquired_records for each in responses), (
            responses
        )
    return member


def _fetch(scene: Scene) -> dict[str, Any]:
    """Return the first request of a session. Another member has acquired the first record."""
    topic = objects.topic(scene)
    member = _loaded(scene, topic)
    newer = {"share_acquire_mode": 1, "is_renew_ack": False} if scene.version > 1 else {}
    return {
        "group_id": member.group,
        "member_id": "another member",
        "share_session_epoch": 0,
        "max_wait_ms": LOCKED_MS_MAX,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 10,
        "batch_size": 10,
        "topics": _topics(topic),
        "forgotten_topics_data": [],
        **newer,
    }


def _acknowledge(scene: Scene) -> dict[str, Any]:
    """Return the acknowledgement of an acquired record."""
    topic = objects.topic(scene)
    member = _loaded(scene, topic)
    batch = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [ACCEPT]}
    newer = {"is_renew_ack": False} if scene.version > 1 else {}
    return {
        "group_id": member.group,
        "member_id": member.member_id,
        "share_session_epoch": 1,
        "topics": _topics(topic, batch),
        **newer,
    }


SHARE_FETCHES: dict[ApiKey, dict[str, Make]] = {
    ApiKey.SHARE_FETCH: {"share fetch": _fetch},
    ApiKey.SHARE_ACKNOWLEDGE: {"share acknowledge": _acknowledge},
}
