"""ControlledShutdown: API key 7, versions 0-3, flexible 3+;
served by nobody since 4.0.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field


class ControlledShutdownRequest(Message, api_key=7, versions="0-3", flexible="3+"):
    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    topic_name: str = field(STRING, "0+")
    partition_index: int = field(INT32, "0+")


class ControlledShutdownResponse(Message, api_key=7, versions="0-3", flexible="3+"):
    error_code: int = field(INT16, "0+")
    remaining_partitions: list[RemainingPartition] = field(array(RemainingPartition), "0+")
