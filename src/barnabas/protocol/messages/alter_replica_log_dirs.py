"""AlterReplicaLogDirs: API key 34, versions 0-2, flexible 2+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, Struct, array, field


class AlterReplicaLogDirTopic(Struct):
    name: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class AlterReplicaLogDir(Struct):
    path: str = field(STRING, "0+")
    topics: list[AlterReplicaLogDirTopic] = field(array(AlterReplicaLogDirTopic), "0+")


class AlterReplicaLogDirsRequest(Message, api_key=34, versions="0-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = field(array(AlterReplicaLogDir), "0+")


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = field(
        array(AlterReplicaLogDirPartitionResult), "0+"
    )


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    results: list[AlterReplicaLogDirTopicResult] = field(array(AlterReplicaLogDirTopicResult), "0+")
