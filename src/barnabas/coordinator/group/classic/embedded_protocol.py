"""Subscriptions and assignments that consumers embed in JoinGroup and SyncGroup (ConsumerProtocol).

The coordinator of a classic group does not interpret assignments. It reads them when the group
becomes a consumer group, and writes them for members of the classic protocol in a consumer group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.request_limits import TOPIC_NAMES_MAX
from barnabas.protocol.codec import decode, decode_from
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.protocol.record_frame import encode_coordinator_value, read_prefix
from barnabas.protocol.records.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from barnabas.protocol.records.consumer_protocol_subscription import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# Newer versions only add fields at the end.
_VERSION_MAX = 3
_PREFIX_BYTES = 2
# Size of the number of topics, which follows the version.
_COUNT_BYTES = 4
# Limit of a subscription with its user data and owned partitions. The record of a group must fit
# into a batch of `__consumer_offsets`, which has at most 1 MB by default.
_SUBSCRIPTION_BYTES_MAX = 4 << 20


def read_version(data: bytes) -> int:
    """Return the version of embedded data, at most the latest known one. Raises ProtocolError."""
    version = read_prefix(data)
    if version < 0:
        raise ProtocolError(f"the version of the embedded consumer protocol is {version}")
    return min(version, _VERSION_MAX)


def subscribed_topics(data: bytes) -> list[str]:
    """Return the topics of a consumer's subscription. Raises ProtocolError.

    Each version begins like version 0. The version in the data is ignored, as in Kafka: some
    clients write a version whose fields they omit.
    """
    _check_size(data)
    return decode(ConsumerProtocolSubscription, 0, data, _PREFIX_BYTES).topics


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Return a consumer's subscription. Raises ProtocolError."""
    _check_size(data)
    found, _ = decode_from(ConsumerProtocolSubscription, read_version(data), data, _PREFIX_BYTES)
    return found


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Return a consumer's assignment. Raises ProtocolError."""
    found, _ = decode_from(ConsumerProtocolAssignment, read_version(data), data, _PREFIX_BYTES)
    return found


def _check_size(data: bytes) -> None:
    """Refuse a subscription whose decoding would hold the event loop. Raises ProtocolError."""
    read_prefix(data)
    count = int.from_bytes(data[_PREFIX_BYTES : _PREFIX_BYTES + _COUNT_BYTES], signed=True)
    if count > TOPIC_NAMES_MAX or len(data) > _SUBSCRIPTION_BYTES_MAX:
        raise ProtocolError(
            f"a subscription has {count} topics and {len(data)} bytes; at most {TOPIC_NAMES_MAX} "
            f"topics and {_SUBSCRIPTION_BYTES_MAX} bytes are read"
        )


def encode_assignment(partitions: Mapping[str, Collection[int]], version: int) -> bytes:
    """Return a consumer's assignment (partitions by topic name) in a version of the protocol."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topic, partitions=sorted(indexes))
            for topic, indexes in sorted(partitions.items())
        ]
    )
    return encode_coordinator_value(assignment, version)
