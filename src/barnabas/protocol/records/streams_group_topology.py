"""StreamsGroupTopologyKey (version 0),
StreamsGroupTopologyValue (version 0):
type 23 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Record, Struct, array, field


class StreamsGroupTopologyKey(Record, type=23, versions="0"):
    group_id: str = field(STRING, "0")


class TopicConfig(Struct):
    key: str = field(STRING, "0+")
    value: str = field(STRING, "0+")


class TopicInfo(Struct):
    name: str = field(STRING, "0+")
    partitions: int = field(INT32, "0+")
    replication_factor: int = field(INT16, "0+")
    topic_configs: list[TopicConfig] = field(array(TopicConfig), "0+")


class CopartitionGroup(Struct):
    source_topics: list[int] = field(array(INT16), "0+")
    source_topic_regex: list[int] = field(array(INT16), "0+")
    repartition_source_topics: list[int] = field(array(INT16), "0+")


class Subtopology(Struct):
    subtopology_id: str = field(STRING, "0+")
    source_topics: list[str] = field(array(STRING), "0+")
    source_topic_regex: list[str] = field(array(STRING), "0+")
    state_changelog_topics: list[TopicInfo] = field(array(TopicInfo), "0+")
    repartition_sink_topics: list[str] = field(array(STRING), "0+")
    repartition_source_topics: list[TopicInfo] = field(array(TopicInfo), "0+")
    copartition_groups: list[CopartitionGroup] = field(array(CopartitionGroup), "0+")


class StreamsGroupTopologyValue(Record, type=23, versions="0", flexible="0+"):
    epoch: int = field(INT32, "0+")
    subtopologies: list[Subtopology] = field(array(Subtopology), "0+")
