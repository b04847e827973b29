"""Payloads that members of a classic group exchange (the consumer protocol, versions 0 to 3).

JoinGroup carries a subscription and SyncGroup an assignment; the broker does not interpret them.
Both begin with a version. A reader uses the known part of a later version (KIP-429, KIP-881).
"""

from __future__ import annotations

from barnabas.client.group.assignors.assignor import Assignment, MemberSubscription
from barnabas.client.topic_partition import TopicPartition, numbers_by_topic
from barnabas.protocol.codec import decode_from, encode_bytes
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.classic_groups import (
    ConsumerProtocolSubscription,
    TopicPartition as OwnedTopic,
)
from barnabas.protocol.records.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition as AssignedTopic,
)

__all__ = [
    "PROTOCOL_TYPE",
    "VERSION_MAX",
    "read_assignment",
    "read_subscription",
    "write_assignment",
    "write_subscription",
]

# The protocol type of groups with these payloads.
PROTOCOL_TYPE = "consumer"
VERSION_MAX = 3
_VERSION_BYTES = 2


def write_subscription(subscription: MemberSubscription, version: int = VERSION_MAX) -> bytes:
    """Serialize a subscription for JoinGroup; older versions omit fields that they lack."""
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


def read_subscription(payload: bytes, instance_id: str | None = None) -> MemberSubscription:
    """Parse a member's subscription.

    Args:
        payload: The serialized subscription.
        instance_id: The id of a static member, which is a separate field of JoinGroup.

    Raises:
        ProtocolError: The payload is malformed.
    """
    version = _version(payload)
    found, _ = decode_from(ConsumerProtocolSubscription, version, payload, _VERSION_BYTES)
    owned = [TopicPartition(t.topic, n) for t in found.owned_partitions for n in t.partitions]
    return MemberSubscription(
        found.topics, owned, found.user_data, found.generation_id, found.rack_id, instance_id
    )


def write_assignment(assignment: Assignment, version: int = VERSION_MAX) -> bytes:
    """Serialize an assignment for SyncGroup."""
    topics = [
        AssignedTopic(topic=topic, partitions=numbers)
        for topic, numbers in numbers_by_topic(assignment.partitions).items()
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=assignment.user_data)
    return version.to_bytes(_VERSION_BYTES, "big") + encode_bytes(message, version)


def read_assignment(payload: bytes) -> Assignment:
    """Parse an assignment; an empty payload means no partitions.

    Brokers send an empty payload for a member without an assignment. Duplicate partitions count
    once.

    Raises:
        ProtocolError: The payload is malformed.
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
            raise ProtocolError(f"invalid partition {tp.partition} of topic {tp.topic}")
    return Assignment(list(partitions), found.user_data)


def _version(payload: bytes) -> int:
    if len(payload) < _VERSION_BYTES:
        raise ProtocolError(f"a payload of {len(payload)} bytes has no version")
    version = int.from_bytes(payload[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise ProtocolError(f"payload version {version}")
    return min(version, VERSION_MAX)
