"""DescribeLogDirs: API key 35, versions 0-5, flexible 2+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class DescribableLogDirTopic(Struct):
    topic: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class DescribeLogDirsRequest(Message, api_key=35, versions="0-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = field(
        array(DescribableLogDirTopic), "0+", nullable="0+"
    )


class DescribeLogDirsPartition(Struct):
    partition_index: int = field(INT32, "0+")
    partition_size: int = field(INT64, "0+")
    offset_lag: int = field(INT64, "0+")
    is_future_key: bool = field(BOOL, "0+")


class DescribeLogDirsTopic(Struct):
    name: str = field(STRING, "0+")
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition), "0+")


class DescribeLogDirsResult(Struct):
    error_code: int = field(INT16, "0+")
    log_dir: str = field(STRING, "0+")
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic), "0+")
    total_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = field(BOOL, "5+", default=False, ignorable=True)


class DescribeLogDirsResponse(Message, api_key=35, versions="0-5", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult), "0+")
