"""Share consumers of both brokers: the same ShareFetch and ShareAcknowledge requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from differential.scene import batch, exchange
from differential.share_state import SharedTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from differential.request import Values
    from differential.scene import Scene
    from differential.side import Side

LOADING_MS_MAX = 5_000
# Kafka releases the lock of a share partition only after its last response.
LOCKED_MS_MAX = 200

# First offset, last offset, acknowledge types.
Acknowledged = tuple[int, int, "Sequence[int]"]


class ShareMember:
    """A member of a share group that reads one topic, with the epoch of its session."""

    def __init__(self, scene: Scene, group: str, topic: str, member_id: str) -> None:
        self.scene = scene
        self.group = group
        self.topic = topic
        self.member_id = member_id
        self.epoch = 0

    def fetch(self, *acknowledged: Acknowledged, **fields: Any) -> Any:
        """Compare the responses to a ShareFetch; the first one begins the session."""
        values = self.fetch_values(*acknowledged, **fields)
        kafka, _ = self.scene.compare(values, ApiKey.SHARE_FETCH, 2)
        return kafka

    def fetch_values(self, *acknowledged: Acknowledged, **fields: Any) -> Callable[[Side], Values]:
        """Return the next ShareFetch of the session for each side."""
        values = self._values(acknowledged, fields.pop("partition", 0), fields.pop("forget", None))
        epoch = self._next_epoch(fields)
        made = {
            # The first fetch waits until the state is loaded.
            "max_wait_ms": LOCKED_MS_MAX if epoch else LOADING_MS_MAX,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "share_session_epoch": epoch,
            **fields,
        }
        return lambda side: {**values(side), **made}

    def acknowledge(self, *acknowledged: Acknowledged, **fields: Any) -> Any:
        """Compare the responses to a ShareAcknowledge."""
        values = self._values(acknowledged, fields.pop("partition", 0), None)
        made = {"share_session_epoch": self._next_epoch(fields), **fields}
        kafka, _ = self.scene.compare(
            lambda side: {**values(side), **made}, ApiKey.SHARE_ACKNOWLEDGE, 2
        )
        return kafka

    def _next_epoch(self, fields: dict[str, Any]) -> int:
        if "share_session_epoch" in fields:
            return int(fields["share_session_epoch"])
        self.epoch += 1
        return self.epoch - 1

    def _values(
        self, acknowledged: Sequence[Acknowledged], partition: int, forget: int | None
    ) -> Any:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
            for first, last, types in acknowledged
        ]

        def build(side: Side) -> Values:
            where = {"partition_index": partition, "acknowledgement_batches": batches}
            values: dict[str, Any] = {
                "group_id": self.group,
                "member_id": self.member_id,
                "topics": [{"topic_id": side.topic_id(self.topic), "partitions": [where]}],
            }
            if forget is not None:
                values["forgotten_topics_data"] = [
                    {"topic_id": side.topic_id(self.topic), "partitions": [forget]}
                ]
            return values

        return build


def initialize(scene: Scene, group: str, topic: str, partition: int) -> None:
    """Create the state of a share partition at offset 0; retry until the broker has the topic."""

    def is_initialized(side: Side) -> bool:
        state = {"partition": partition, "state_epoch": 1, "start_offset": 0}
        topics = [{"topic_id": side.topic_id(topic), "partitions": [state]}]
        values = {"group_id": group, "topics": topics}
        response = exchange(side, ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, values)
        return bool(response.results[0].partitions[0].error_code == ErrorCode.NONE)

    scene.until(is_initialized)


class SharedGroup:
    """A group with state at offset 0, and its topic."""

    def __init__(self, scene: Scene, partitions: int = 1, **configs: str) -> None:
        self.scene = scene
        self.topic = scene.topic(partitions, **configs)
        self.group = scene.name("group")
        self.state = SharedTopic(scene, self.group, self.topic)
        for partition in range(partitions):
            initialize(scene, self.group, self.topic, partition)

    def produce(self, *counts: int, partition: int = 0, **options: Any) -> None:
        """Append a record batch with each number of records."""
        for count in counts:
            records = [f"value {index}".encode() for index in range(count)]
            self.scene.produce(self.topic, batch(*records, **options), partition)

    def member(self, name: str = "member") -> ShareMember:
        """Return a new member."""
        return ShareMember(self.scene, self.group, self.topic, f"{name} of the group")
