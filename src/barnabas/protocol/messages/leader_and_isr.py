"""LeaderAndIsr: API key 4, versions 0-7, flexible 4+;
served by nobody since 4.0.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    ZERO_UUID,
    Message,
    Struct,
    array,
    field,
)


class LeaderAndIsrPartitionState(Struct):
    topic_name: str = field(STRING, "0-1", default="", ignorable=True)
    partition_index: int = field(INT32, "0+")
    controller_epoch: int = field(INT32, "0+")
    leader: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    isr: list[int] = field(array(INT32), "0+")
    partition_epoch: int = field(INT32, "0+")
    replicas: list[int] = field(array(INT32), "0+")
    adding_replicas: list[int] = field(array(INT32), "3+", default=[], ignorable=True)
    removing_replicas: list[int] = field(array(INT32), "3+", default=[], ignorable=True)
    is_new: bool = field(BOOL, "1+", default=False, ignorable=True)
    leader_recovery_state: int = field(INT8, "6+", default=0)


class LeaderAndIsrTopicState(Struct):
    topic_name: str = field(STRING, "2+")
    topic_id: bytes = field(UUID, "5+", default=ZERO_UUID, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = field(
        array(LeaderAndIsrPartitionState), "2+"
    )


class LeaderAndIsrLiveLeader(Struct):
    broker_id: int = field(INT32, "0+")
    host_name: str = field(STRING, "0+")
    port: int = field(INT32, "0+")


class LeaderAndIsrRequest(Message, api_key=4, versions="0-7", flexible="4+"):
    controller_id: int = field(INT32, "0+")
    is_kraft_controller: bool = field(BOOL, "7+", default=False)
    controller_epoch: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "2+", default=-1, ignorable=True)
    type: int = field(INT8, "5+", default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(
        array(LeaderAndIsrPartitionState), "0-1", default=[]
    )
    topic_states: list[LeaderAndIsrTopicState] = field(
        array(LeaderAndIsrTopicState), "2+", default=[]
    )
    live_leaders: list[LeaderAndIsrLiveLeader] = field(array(LeaderAndIsrLiveLeader), "0+")


class LeaderAndIsrPartitionError(Struct):
    topic_name: str = field(STRING, "0-4", default="", ignorable=True)
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class LeaderAndIsrTopicError(Struct):
    topic_id: bytes = field(UUID, "5+")
    partition_errors: list[LeaderAndIsrPartitionError] = field(
        array(LeaderAndIsrPartitionError), "5+"
    )


class LeaderAndIsrResponse(Message, api_key=4, versions="0-7", flexible="4+"):
    error_code: int = field(INT16, "0+")
    partition_errors: list[LeaderAndIsrPartitionError] = field(
        array(LeaderAndIsrPartitionError), "0-4", default=[]
    )
    topics: list[LeaderAndIsrTopicError] = field(array(LeaderAndIsrTopicError), "5+", default=[])
