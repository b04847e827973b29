"""Waits for services that start a little later: the coordinators and the first producer ids."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.primitives import uuid_to_string
from differential.matrix.share_group_requests import described_offsets
from differential.scene import Scene, exchange, new_producer
from waiting import eventually

if TYPE_CHECKING:
    from differential.scene import Pair
    from differential.side import Side

# More than enough groups to reach each partition of the offsets topic.
GROUPS = [f"warm-up-{number}" for number in range(12)]


TRANSACTIONAL_IDS = 40
UNKNOWN_TOPIC = b"\x07" * 16


def warm_up(pair: Pair) -> None:
    """Wait until both brokers serve all groups and transactional ids, and assign producer ids."""
    for side in pair.sides():
        words = f"{side.name}: no group coordinator"
        eventually(partial(_is_ready, side), words)
        for number in range(TRANSACTIONAL_IDS):
            eventually(partial(_has_producer, side, f"warm-up-{number}"), side.name)
        eventually(partial(_has_share_coordinators, side), f"{side.name}: no share coordinator")
        new_producer(side)


def describe_first_share_offsets(pair: Pair) -> None:
    """Describe the offsets of a share group: Kafka's first response takes seconds."""
    scene = Scene(pair, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "warm-up", 0)
    scene.do(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, described_offsets(scene))


def _has_producer(side: Side, transactional_id: str) -> bool:
    requested = {"key_type": 1, "coordinator_keys": [transactional_id]}
    (found,) = exchange(side, ApiKey.FIND_COORDINATOR, 4, requested).coordinators
    if found.error_code != ErrorCode.NONE:
        return False
    started = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    made = exchange(side, ApiKey.INIT_PRODUCER_ID, 4, started)
    return bool(made.error_code == ErrorCode.NONE)


def _has_share_coordinators(side: Side) -> bool:
    keys = [f"warm-up:{uuid_to_string(UNKNOWN_TOPIC)}:{index}" for index in range(12)]
    requested = {"key_type": 2, "coordinator_keys": keys}
    found = exchange(side, ApiKey.FIND_COORDINATOR, 6, requested).coordinators
    if any(each.error_code != ErrorCode.NONE for each in found):
        return False
    partitions = [{"partition": index} for index in range(12)]
    topics = [{"topic_id": UNKNOWN_TOPIC, "partitions": partitions}]
    deletion = {"group_id": "warm-up", "topics": topics}
    (deleted,) = exchange(side, ApiKey.DELETE_SHARE_GROUP_STATE, 0, deletion).results
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return all(each.error_code == unknown for each in deleted.partitions)


def _is_ready(side: Side) -> bool:
    found = exchange(side, ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": GROUPS}).coordinators
    if any(each.error_code != ErrorCode.NONE for each in found):
        return False
    groups = [{"group_id": name, "topics": None} for name in GROUPS]
    response = exchange(side, ApiKey.OFFSET_FETCH, 8, {"groups": groups}).groups
    return all(each.error_code == ErrorCode.NONE for each in response)
