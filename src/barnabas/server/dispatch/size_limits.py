"""Requests of group members that are refused for their size, before they are copied and decoded.

A decoder copies a field of bytes in one step. A JoinGroup of 90 MB would hold the event loop for
90 ms. Kafka accepts such requests, but cannot store their content: the record of a group must fit
into a batch of `__consumer_offsets`, which has at most 1 MB by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.schema import Message

# Limit of the requests below. Copying and decoding one field of this size takes 7 ms each.
MEMBER_REQUEST_BYTES_MAX = 16 << 20
_MESSAGE = f"The request has more than {MEMBER_REQUEST_BYTES_MAX} bytes."


def refusal_for_size(api_key: int, version: int, size: int) -> Message | None:
    """Return the response to a request that is too large, or None if it may be decoded."""
    refuse = _REFUSALS.get(api_key)
    if refuse is None or size <= MEMBER_REQUEST_BYTES_MAX:
        return None
    return refuse(version)


def _join_group(version: int) -> Message:
    from barnabas.coordinator.group.classic.classic_group import failed_join
    from barnabas.coordinator.group.requests.member_requests import in_version

    return in_version(failed_join("", ErrorCode.GROUP_MAX_SIZE_REACHED), version)


def _sync_group(_version: int) -> Message:
    from barnabas.coordinator.group.classic.classic_group import failed_sync

    # Kafka's error for an assignment that does not fit into a batch.
    return failed_sync(ErrorCode.UNKNOWN_SERVER_ERROR)


def _consumer_heartbeat(_version: int) -> Message:
    from barnabas.coordinator.group.consumer.consumer_membership import failed_heartbeat

    return failed_heartbeat(ErrorCode.INVALID_REQUEST, _MESSAGE)


def _share_heartbeat(_version: int) -> Message:
    from barnabas.coordinator.group.share.share_membership import failed_share_heartbeat

    return failed_share_heartbeat(ErrorCode.INVALID_REQUEST, _MESSAGE)


def _streams_heartbeat(_version: int) -> Message:
    from barnabas.coordinator.group.streams.streams_heartbeat import failed_streams_heartbeat

    return failed_streams_heartbeat(ErrorCode.INVALID_REQUEST, _MESSAGE)


_REFUSALS: dict[int, Callable[[int], Message]] = {
    int(ApiKey.JOIN_GROUP): _join_group,
    int(ApiKey.SYNC_GROUP): _sync_group,
    int(ApiKey.CONSUMER_GROUP_HEARTBEAT): _consumer_heartbeat,
    int(ApiKey.SHARE_GROUP_HEARTBEAT): _share_heartbeat,
    int(ApiKey.STREAMS_GROUP_HEARTBEAT): _streams_heartbeat,
}
