"""A group on one broker: its topics, its responses as comparable text, and its records.

Topic ids, hashes and times differ between brokers and are normalized.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_frame import (
    decode_coordinator_key,
    decode_coordinator_value,
    read_prefix,
)
from differential.broker_pair import SETTINGS
from differential.internal_records import OFFSETS_TOPIC, stored
from differential.response import as_text
from differential.rules import HOUR_MS
from differential.scene import exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from differential.side import Side

PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])
_TIMES = ("assignment_timestamp", "timestamp", "current_state_timestamp")


class GroupMembers:
    """The members of a group on one broker."""

    def __init__(self, side: Side, group: str) -> None:
        self.side = side
        self.group = group
        # Topic ids by name.
        self.ids: dict[str, bytes] = {}
        # All responses that are compared.
        self.lines: list[str] = []

    def create_topic(self, name: str, count: int) -> None:
        """Create a topic. Kafka's coordinators get it only after the response."""
        topic = {"name": name, "num_partitions": count, "replication_factor": 1}
        values = {"topics": [topic], "timeout_ms": 30_000}
        created = exchange(self.side, ApiKey.CREATE_TOPICS, 7, values).topics[0]
        assert created.error_code == ErrorCode.NONE, created
        self.ids[name] = created.topic_id
        self.side.remember(f"id of {name}", created.topic_id)

    def clean(self, *groups: str) -> None:
        """Delete the group, other groups and the topics, so that other tests do not see them."""
        exchange(self.side, ApiKey.DELETE_GROUPS, 2, {"groups_names": [self.group, *groups]})
        names = {"topic_names": [*self.ids], "timeout_ms": 30_000}
        exchange(self.side, ApiKey.DELETE_TOPICS, 5, names)

    def note(self, response: Any) -> Any:
        """Keep a response for the comparison."""
        self.lines.append(as_text(response, self.side))
        return response

    def do(self, api: ApiKey, version: int, **values: Any) -> Any:
        """Send a request, and keep its response for the comparison."""
        return self.note(exchange(self.side, api, version, values))

    def delete_group(self) -> None:
        self.do(ApiKey.DELETE_GROUPS, 2, groups_names=[self.group])

    def listed(self, *types: str) -> None:
        """List the groups of these types, and keep the listed group for the comparison."""
        response = exchange(self.side, ApiKey.LIST_GROUPS, 5, {"types_filter": list(types)})
        self.lines.append(str([each for each in response.groups if each.group_id == self.group]))


def group_records(
    members: GroupMembers,
    kinds: Mapping[int, tuple[Any, Any]],
    sort: Callable[[Any], None],
) -> list[str]:
    """Return the records of the group, sorted by key; those of one key in the order of the log.

    Kafka writes the records of one change in the order of a hash table.

    Args:
        members: the group.
        kinds: the classes of key and value by record type.
        sort: sorts the lists of a value that Kafka keeps in hash tables.
    """
    lines: dict[str, list[str]] = {}
    for each in stored(members.side, OFFSETS_TOPIC, PARTITIONS):
        key_class, value_class = kinds.get(read_prefix(each.key), (None, None))
        if key_class is None:
            continue
        key = decode_coordinator_key(key_class, each.key)
        if getattr(key, "group_id", getattr(key, "group", None)) != members.group:
            continue
        value = None
        if each.value is not None:
            value = decode_coordinator_value(value_class, each.value)
            _normalize(value)
            sort(value)
        text = as_text(value, members.side)
        lines.setdefault(as_text(key, members.side), []).append(text)
    return [f"{key} {text}" for key, texts in sorted(lines.items()) for text in texts]


def _normalize(value: Any) -> None:
    """Replace the times of the run, and hashes of topic ids."""
    now_ms = time.time() * 1000
    for name in _TIMES:
        if abs(getattr(value, name, 0) - now_ms) < HOUR_MS:
            setattr(value, name, 1)
    if hasattr(value, "metadata_hash"):
        value.metadata_hash = int(value.metadata_hash != 0)
