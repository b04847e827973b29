"""ElectLeaders: API key 43, versions 0-2, flexible 2+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field


class TopicPartitions(Struct):
    topic: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    election_type: int = field(INT8, "1+", default=0)
    topic_partitions: list[TopicPartitions] | None = field(
        array(TopicPartitions), "0+", nullable="0+"
    )
    timeout_ms: int = field(INT32, "0+", default=60000)


class PartitionResult(Struct):
    partition_id: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")


class ReplicaElectionResult(Struct):
    topic: str = field(STRING, "0+")
    partition_result: list[PartitionResult] = field(array(PartitionResult), "0+")


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = field(
        array(ReplicaElectionResult), "0+"
    )
