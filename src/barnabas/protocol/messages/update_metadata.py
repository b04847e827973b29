"""UpdateMetadata: API key 6, versions 0-8, flexible 6+;
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


class UpdateMetadataPartitionState(Struct):
    topic_name: str = field(STRING, "0-4", default="", ignorable=True)
    partition_index: int = field(INT32, "0+")
    controller_epoch: int = field(INT32, "0+")
    leader: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    isr: list[int] = field(array(INT32), "0+")
    zk_version: int = field(INT32, "0+")
    replicas: list[int] = field(array(INT32), "0+")
    offline_replicas: list[int] = field(array(INT32), "4+", default=[], ignorable=True)


class UpdateMetadataTopicState(Struct):
    topic_name: str = field(STRING, "5+")
    topic_id: bytes = field(UUID, "7+", default=ZERO_UUID, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = field(
        array(UpdateMetadataPartitionState), "5+"
    )


class UpdateMetadataEndpoint(Struct):
    port: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    listener: str = field(STRING, "3+", default="", ignorable=True)
    security_protocol: int = field(INT16, "1+")


class UpdateMetadataBroker(Struct):
    id: int = field(INT32, "0+")
    v0_host: str = field(STRING, "0", default="", ignorable=True)
    v0_port: int = field(INT32, "0", default=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = field(
        array(UpdateMetadataEndpoint), "1+", default=[], ignorable=True
    )
    rack: str | None = field(STRING, "2+", nullable="0+", default="", ignorable=True)


class UpdateMetadataRequest(Message, api_key=6, versions="0-8", flexible="6+"):
    controller_id: int = field(INT32, "0+")
    is_kraft_controller: bool = field(BOOL, "8+", default=False)
    type: int = field(INT8, "8+", default=0, tag=0)
    controller_epoch: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(
        array(UpdateMetadataPartitionState), "0-4", default=[]
    )
    topic_states: list[UpdateMetadataTopicState] = field(
        array(UpdateMetadataTopicState), "5+", default=[]
    )
    live_brokers: list[UpdateMetadataBroker] = field(array(UpdateMetadataBroker), "0+")


class UpdateMetadataResponse(Message, api_key=6, versions="0-8", flexible="6+"):
    error_code: int = field(INT16, "0+")
