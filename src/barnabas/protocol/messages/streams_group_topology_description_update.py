"""StreamsGroupTopologyDescriptionUpdate: API key 93, version 0, flexible 0+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field


class TopologyDescriptionNode(Struct):
    name: str = field(STRING, "0+")
    node_type: int = field(INT8, "0+")
    source_topics: list[str] = field(array(STRING), "0+")
    sink_topic: str | None = field(STRING, "0+", nullable="0+", default=None)
    stores: list[str] = field(array(STRING), "0+")
    successors: list[str] = field(array(STRING), "0+")


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = field(STRING, "0+")
    nodes: list[TopologyDescriptionNode] = field(array(TopologyDescriptionNode), "0+")


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = field(TopologyDescriptionNode, "0+")
    processor: TopologyDescriptionNode = field(TopologyDescriptionNode, "0+")


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = field(
        array(TopologyDescriptionSubtopology), "0+"
    )
    global_stores: list[TopologyDescriptionGlobalStore] = field(
        array(TopologyDescriptionGlobalStore), "0+"
    )


class StreamsGroupTopologyDescriptionUpdateRequest(
    Message, api_key=93, versions="0", flexible="0+"
):
    group_id: str = field(STRING, "0+")
    member_id: str = field(STRING, "0+")
    topology_epoch: int = field(INT32, "0+")
    topology_description: TopologyDescription = field(TopologyDescription, "0+")


class StreamsGroupTopologyDescriptionUpdateResponse(
    Message, api_key=93, versions="0", flexible="0+"
):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
