"""The log directories of a broker and what lies in them (KIP-113, KIP-827)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.errors import BrokerError, broker_error
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message

__all__ = ["LogDirectory", "ReplicaInfo", "describe_log_dirs"]


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One replica in a log directory."""

    size: int
    # How far its end is behind: the high watermark, or for a future replica the current one's end.
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """One log directory of a broker."""

    path: str
    # Why it cannot be used, None if it can.
    error: BrokerError | None
    # -1 if the broker is too old to tell.
    total_bytes: int
    usable_bytes: int
    replicas: dict[TopicPartition, ReplicaInfo]


def describe_log_dirs() -> AdminCall[list[LogDirectory]]:
    """All directories of the broker that is asked."""

    def build(_version: int) -> Message:
        return DescribeLogDirsRequest(topics=None)

    def read(response: Message) -> list[LogDirectory]:
        assert isinstance(response, DescribeLogDirsResponse)
        raise_error(response.error_code, "log directories")
        directories = []
        for result in response.results:
            code = result.error_code
            error = broker_error(code, f"log directory {result.log_dir}") if code else None
            replicas = {
                TopicPartition(topic.name, p.partition_index): ReplicaInfo(
                    p.partition_size, p.offset_lag, p.is_future_key
                )
                for topic in result.topics
                for p in topic.partitions
            }
            directories.append(
                LogDirectory(
                    result.log_dir, error, result.total_bytes, result.usable_bytes, replicas
                )
            )
        return directories

    return AdminCall(ApiKey.DESCRIBE_LOG_DIRS, build, read)
