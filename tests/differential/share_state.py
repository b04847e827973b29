"""Requests to both share coordinators, and the records that they leave in `__share_group_state`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from barnabas.coordinator.share.share_record import SNAPSHOT_TYPE, read_key
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.record_frame import (
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)
from barnabas.protocol.records.coordinator_logs import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from differential.internal_records import stored
from differential.rules import HOUR_MS
from differential.scene import exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from differential.request import Values
    from differential.scene import Scene
    from differential.side import Side

SHARE_TOPIC = "__share_group_state"
INITIALIZE, READ = ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE
WRITE, DELETE = ApiKey.WRITE_SHARE_GROUP_STATE, ApiKey.DELETE_SHARE_GROUP_STATE
SUMMARY = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
VERSIONS = {WRITE: 1, SUMMARY: 1}
# Partitions of each topic whose share partitions are compared.
TOPIC_PARTITIONS = 2


class SharedTopic:
    """A group's view of a topic: its share partitions on both brokers."""

    def __init__(self, scene: Scene, group: str, topic: str) -> None:
        self.scene = scene
        self.group = group
        self.topic = topic
        scene.until(self._is_known)

    def _is_known(self, side: Side) -> bool:
        """Return whether the share coordinators have the topic; Kafka's get it after leaders."""
        partitions = [{"partition": each, "leader_epoch": 0} for each in range(TOPIC_PARTITIONS)]
        topics = [{"topic_id": side.topic_id(self.topic), "partitions": partitions}]
        (found,) = exchange(side, SUMMARY, 1, {"group_id": self.group, "topics": topics}).results
        return not any(each.error_code for each in found.partitions)

    def compare(self, api: ApiKey, *partitions: Mapping[str, Any]) -> Any:
        """Send a request for these partitions; compare the responses, and return Kafka's."""

        def build(side: Side) -> Values:
            topics = [{"topic_id": side.topic_id(self.topic), "partitions": list(partitions)}]
            return {"group_id": self.group, "topics": topics}

        kafka, _ = self.scene.compare(build, api, VERSIONS.get(api, 0))
        return kafka

    def initialize(self, state_epoch: int, start_offset: int, partition: int = 0) -> None:
        values = {"state_epoch": state_epoch, "start_offset": start_offset}
        self.compare(INITIALIZE, {"partition": partition, **values})

    def write(self, *batches: tuple[int, int, int, int], **values: int) -> None:
        """Write batches of first offset, last offset, state and count; `values` are fields."""
        names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
        made = [dict(zip(names, each, strict=True)) for each in batches]
        defaults = {"partition": 0, "state_epoch": 0, "leader_epoch": 0, "start_offset": -1}
        self.compare(WRITE, {**defaults, **values, "state_batches": made})

    def compare_state(self, leader_epoch: int = 0, partition: int = 0) -> None:
        """Read the state and its summary."""
        self.compare(READ, {"partition": partition, "leader_epoch": leader_epoch})
        self.compare(SUMMARY, {"partition": partition, "leader_epoch": leader_epoch})

    def delete(self, partition: int = 0) -> None:
        self.compare(DELETE, {"partition": partition})


def share_records(side: Side, groups: list[str], partitions: int) -> list[str]:
    """Return the records of these groups as text, grouped by share partition."""
    found: dict[str, list[str]] = {}
    for each in stored(side, SHARE_TOPIC, partitions):
        record_type, key = read_key(each.key)
        assert key is not None, each
        if key.group_id not in groups:
            continue
        assert each.key == _key_bytes(record_type, each.key), each
        name = f"{key.group_id} {side.name_of(key.topic_id)!r} {key.partition}"
        words = "tombstone" if each.value is None else _value(record_type, each.value)
        found.setdefault(name, []).append(f"{each.batch()} type={record_type} {words}")
    return [line for name, lines in sorted(found.items()) for line in (name, *lines)]


def _key_bytes(record_type: int, content: bytes) -> bytes:
    """Return the key, decoded and encoded again."""
    cls: Callable[..., Any] = ShareSnapshotKey if record_type == SNAPSHOT_TYPE else ShareUpdateKey
    decoded: Any = decode_coordinator_key(cls, content)  # type: ignore[type-var]
    return encode_coordinator_key(decoded)


def _value(record_type: int, content: bytes) -> str:
    """Return the bytes of a value and its fields as text."""
    if record_type != SNAPSHOT_TYPE:
        update = decode_coordinator_value(ShareUpdateValue, content)
        assert encode_coordinator_value(update, 0) == content, f"{update} {content.hex()}"
        return f"{content.hex()} {update}"
    snapshot = decode_coordinator_value(ShareSnapshotValue, content)
    assert encode_coordinator_value(snapshot, 0) == content, f"{snapshot} {content.hex()}"
    now_ms = time.time() * 1000
    for stamp in (snapshot.create_timestamp, snapshot.write_timestamp):
        assert abs(stamp - now_ms) < HOUR_MS, snapshot
    # The two times are equal, unless a cold share partition was written again.
    snapshot.write_timestamp -= snapshot.create_timestamp
    snapshot.create_timestamp = 0
    return f"{encode_coordinator_value(snapshot, 0).hex()} {snapshot}"
