"""What members of a classic consumer group tell each other (the consumer protocol, versions 0-3).

A subscription goes with JoinGroup, an assignment with SyncGroup; the broker does not look inside.
Both begin with a version, and a reader takes what it knows of a later one (KIP-429, KIP-881).
"""

from __future__ import annotations

from barnabas.client.group.assignors.assignor import Assignment, Subscription
from barnabas.client.topic_partition import TopicPartition, numbers_by_topic
from barnabas.protocol.codec import decode_from, encode_bytes
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.protocol.records.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
)
from barnabas.protocol.records.consumer_protocol_assignment import (
    TopicPartition as AssignedTopic,
)
from barnabas.protocol.records.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from barnabas.protocol.records.consumer_protocol_subscription import (
    TopicPartition as OwnedTopic,
)

__all__ = [
    "PROTOCOL_TYPE",
    "VERSION_MAX",
    "read_assignment",
    "read_subscription",
    "write_assignment",
    "write_subscription",
]

# The kind of a group whose members' payloads are these.
PROTOCOL_TYPE = "consumer"
VERSION_MAX = 3
_VERSION_BYTES = 2


def write_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    """A subscription as JoinGroup carries it; older versions leave out what they lack."""
    owned = [
        OwnedTopic(topic=topic, partitions=numbers)
        for topic, numbers in numbers_by_topic(subscription.owned_partitions).items()
    ]
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=owned,
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    return version.to_bytes(_VERSION_BYTES, "big") + encode_bytes(message, version)


def read_subscription(payload: bytes, instance_id: str | None = None) -> Subscription:
    """A member's subscription.

    Args:
        payload: its bytes.
        instance_id: the member's static name, which JoinGroup carries beside it.

    Raises:
        ProtocolError: it is not one.
    """
    version = _version(payload)
    found, _ = decode_from(ConsumerProtocolSubscription, version, payload, _VERSION_BYTES)
    owned = [TopicPartition(t.topic, n) for t in found.owned_partitions for n in t.partitions]
    return Subscription(
        found.topics, owned, found.user_data, found.generation_id, found.rack_id, instance_id
    )


def write_assignment(assignment: Assignment, version: int = VERSION_MAX) -> bytes:
    """An assignment as SyncGroup carries it."""
    topics = [
        AssignedTopic(topic=topic, partitions=numbers)
        for topic, numbers in numbers_by_topic(assignment.partitions).items()
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=assignment.user_data)
    return version.to_bytes(_VERSION_BYTES, "big") + encode_bytes(message, version)


def read_assignment(payload: bytes) -> Assignment:
    """An assignment; none at all for no bytes, which brokers send for an unassigned member.

    A partition that is named twice counts once.

    Raises:
        ProtocolError: it is not one.
    """
    if not payload:
        return Assignment(())
    version = _version(payload)
    found, _ = decode_from(ConsumerProtocolAssignment, version, payload, _VERSION_BYTES)
    partitions = dict.fromkeys(
        TopicPartition(t.topic, n) for t in found.assigned_partitions for n in t.partitions
    )
    for tp in partitions:
        if tp.partition < 0:
            raise ProtocolError(f"a partition cannot be {tp.partition}: {tp.topic}")
    return Assignment(list(partitions), found.user_data)


def _version(payload: bytes) -> int:
    if len(payload) < _VERSION_BYTES:
        raise ProtocolError(f"a payload of {len(payload)} bytes has no version")
    version = int.from_bytes(payload[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise ProtocolError(f"payload version {version}")
    return min(version, VERSION_MAX)
