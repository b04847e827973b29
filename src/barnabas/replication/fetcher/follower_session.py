"""The fetch session of a follower with one leader; see `FetchSessionHandler`."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from barnabas.protocol.fetch_session_handler import FetchSessionHandler, FetchSessionRequest
from barnabas.storage.topic_partition import TopicPartition


class RequestedPartition(NamedTuple):
    """The fetch parameters of one partition. The leader caches the last ones it received."""

    topic_id: bytes
    fetch_offset: int
    log_start_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int


FollowerSession: TypeAlias = FetchSessionHandler[TopicPartition, RequestedPartition]
FollowerRequest: TypeAlias = FetchSessionRequest[TopicPartition, RequestedPartition]
