"""All rules for values that may differ between two brokers in the same state, with reasons.

A rule replaces a field's value before the responses are compared. A field without a rule is
compared unchanged.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.schema import ZERO_UUID
from barnabas.record.batch import (
    CONTROL_FLAG,
    TIMESTAMP_TYPE_FLAG,
    CorruptBatchError,
    batches,
)
from barnabas.server.handlers.broker_apis import SERVED_APIS
from differential.side import Side

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

HOUR_MS = 3_600_000
# How a member's id ends that a broker drew.
DRAWN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class Rule(NamedTuple):
    """Fields by a pattern of their path, their replacement for the comparison, and the reason."""

    pattern: str
    replace: Callable[[Any, Side], object]
    why: str


def _drawn(value: Any, side: Side) -> object:
    """A value that a broker draws itself: the name that the case gave it, or that it is new."""
    if value is None or value in (0, -1, "", ZERO_UUID):
        return value
    known = side.name_of(value)
    return "a new one" if known is value else known


def _member(value: str, side: Side) -> object:
    """A member by the case's name for it, or by what its id begins with."""
    return DRAWN.sub("", str(side.name_of(value)))


def _topic_id(value: Any, side: Side) -> object:
    """Ids that no broker drew, as cases make them up, are compared."""
    return side.name_of(value)


def _time(value: Any, side: Side) -> object:
    """A time of the test's run is "now"; any other is compared as it is."""
    return "now" if abs(value - time.time() * 1000) < HOUR_MS else value


def _port(value: Any, side: Side) -> object:
    return "its own port" if value == side.port else value


def _presence(value: Any, side: Side) -> object:
    return "a text" if value else value


def _positive(value: Any, side: Side) -> object:
    return "above 0" if value > 0 else value


def _records(value: Any, side: Side) -> object:
    """Batches as bytes, without values that a broker assigns, and then without checksum.

    A broker stamps batches with log append time and control batches; it draws producer ids, which
    are replaced by the case's name.
    """
    if value is None:
        return None
    data = bytearray(value)
    producers: list[str] = []
    try:
        for position, header in batches(bytes(data)):
            if header.magic != 2:
                continue
            if header.attributes & (TIMESTAMP_TYPE_FLAG | CONTROL_FLAG):
                data[position + 17 : position + 21] = bytes(4)
                data[position + 27 : position + 43] = bytes(16)
            known = side.name_of(header.producer_id)
            if known is not header.producer_id:
                data[position + 17 : position + 21] = bytes(4)
                data[position + 43 : position + 51] = bytes(8)
                producers.append(str(known))
    except CorruptBatchError:
        pass
    return " ".join([data.hex(), *producers])


def _entity(entry: Any) -> object:
    """Whose quota an entry is."""
    return tuple((each.entity_type, each.entity_name) for each in entry.entity)


RULES = (
    Rule(r"CreateTopics\.topics\[\]\.topic_id", _drawn, "drawn even where nothing is created"),
    Rule(r"topic_id", _topic_id, "a broker draws topic ids at random"),
    Rule(r"producer_id|session_id|member_id", _drawn, "drawn by the broker"),
    Rule(r"cluster_id", _presence, "each cluster has its own id"),
    Rule(r"log_dir", _presence, "each has its own directory"),
    Rule(r"total_bytes|usable_bytes", _positive, "the disk, which both fill"),
    Rule(r"port", _port, "both listen on a free port"),
    Rule(
        r"last_fetch_timestamp|last_caught_up_timestamp|log_append_time_ms|last_timestamp"
        r"|transaction_start_time_ms|ListOffsets.*\.timestamp",
        _time,
        "the brokers' own clocks, asked one after the other",
    ),
    Rule(
        r"error_message|acknowledge_error_message|message|batch_index_error_message|documentation"
        r"|status_detail",
        _presence,
        "words are for people; clients see if there are any",
    ),
    Rule(r"records", _records, "log append times, and with them checksums"),
    Rule(r"JoinGroup\.leader", _drawn, "a member id, drawn by the broker"),
    Rule(r"finalized_features_epoch", _positive, "an offset in the metadata log"),
    Rule(r"DescribeQuorum.*(high_watermark|log_end_offset)", _positive, "the same"),
    Rule(
        r"DescribeQuorum.*leader_epoch",
        _positive,
        "Kafka's controller steps down over requests that it cannot make sense of",
    ),
)

# Lists that Kafka answers in the order of a hash table: compared by what the items are.
UNORDERED: dict[str, Callable[[Any, Side], object]] = {
    "Metadata.topics": lambda topic, side: topic.name or side.name_of(topic.topic_id),
    "ListOffsets.topics": lambda topic, _: topic.name,
    "ListOffsets.topics[].partitions": lambda partition, _: partition.partition_index,
    "ApiVersions.api_keys": lambda api, _: api.api_key,
    "AlterUserScramCredentials.results": lambda result, _: result.user,
    "Produce.responses": lambda topic, side: topic.name or side.name_of(topic.topic_id),
    "Produce.responses[].partition_responses": lambda partition, _: partition.index,
    "CreateTopics.topics": lambda topic, _: topic.name,
    "CreateTopics.topics[].configs": lambda config, _: config.name,
    "CreatePartitions.results": lambda topic, _: topic.name,
    "DeleteTopics.responses": lambda topic, side: (
        side.name_of(topic.topic_id) if topic.name is None else topic.name
    ),
    "DeleteRecords.topics": lambda topic, _: topic.name,
    "DescribeConfigs.results": lambda result, _: (result.resource_type, result.resource_name),
    "DescribeConfigs.results[].configs": lambda config, _: config.name,
    "IncrementalAlterConfigs.responses": lambda each, _: (each.resource_type, each.resource_name),
    "AlterConfigs.responses": lambda each, _: (each.resource_type, each.resource_name),
    "AlterReplicaLogDirs.results": lambda topic, _: topic.topic_name,
    "AlterReplicaLogDirs.results[].partitions": lambda each, _: each.partition_index,
    "DeleteRecords.topics[].partitions": lambda each, _: each.partition_index,
    "DescribeUserScramCredentials.results": lambda result, _: result.user,
    "AlterClientQuotas.entries": lambda entry, _: _entity(entry),
    "DescribeClientQuotas.entries": lambda entry, _: _entity(entry),
    "OffsetForLeaderEpoch.topics": lambda topic, _: topic.topic,
    "ElectLeaders.replica_election_results": lambda topic, _: topic.topic,
    "OffsetFetch.topics": lambda topic, _: topic.name,
    "OffsetFetch.groups[].topics": lambda topic, side: topic.name or side.name_of(topic.topic_id),
    "DescribeClientQuotas.entries[].values": lambda value, _: value.key,
    "ListGroups.groups": lambda group, _: group.group_id,
    "DescribeLogDirs.results[].topics": lambda topic, _: topic.name,
    "DescribeLogDirs.results[].topics[].partitions": lambda each, _: each.partition_index,
    "DescribeGroups.groups": lambda group, _: group.group_id,
    "DescribeGroups.groups[].members": lambda member, side: _member(member.member_id, side),
    "JoinGroup.members": lambda member, side: _member(member.member_id, side),
    "ListTransactions.transaction_states": lambda each, _: each.transactional_id,
    "DescribeTransactions.transaction_states[].topics": lambda topic, _: topic.topic,
    "DescribeTransactions.transaction_states[].topics[].partitions": lambda each, _: each,
    "DescribeProducers.topics[].partitions": lambda each, _: each.partition_index,
    "DescribeProducers.topics[].partitions[].active_producers": lambda each, side: side.name_of(
        each.producer_id
    ),
    "AddPartitionsToTxn.results_by_transaction": lambda each, _: each.transactional_id,
    "AddPartitionsToTxn.results_by_transaction[].topic_results": lambda topic, _: topic.name,
    "AddPartitionsToTxn.results_by_topic_v3_and_below": lambda topic, _: topic.name,
    "AddPartitionsToTxn.results_by_transaction[].topic_results[].results_by_partition": (
        lambda each, _: each.partition_index
    ),
    "AddPartitionsToTxn.results_by_topic_v3_and_below[].results_by_partition": (
        lambda each, _: each.partition_index
    ),
    "WriteTxnMarkers.markers[].topics": lambda topic, _: topic.name,
    "WriteTxnMarkers.markers[].topics[].partitions": lambda each, _: each.partition_index,
    "DeleteGroups.results": lambda result, _: result.group_id,
    "ApiVersions.supported_features": lambda feature, _: feature.name,
    "ApiVersions.finalized_features": lambda feature, _: feature.name,
    **{
        f"{place}.{role}_tasks[].partitions": lambda partition, _: partition
        for place in (
            "StreamsGroupHeartbeat",
            "StreamsGroupDescribe.groups[].members[].assignment",
            "StreamsGroupDescribe.groups[].members[].target_assignment",
        )
        for role in ("active", "standby", "warmup")
    },
    "ListConfigResources.config_resources": lambda each, _: (
        each.resource_type,
        each.resource_name,
    ),
}

# What Barnabas does not have, and therefore does not show, is left out of Kafka's lists. Were it
# there on our side, the lists would differ.
_KEYS_NOT_OBEYED = {
    "local.retention.bytes",
    "local.retention.ms",
    "preallocate",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
}
NOT_SERVED: dict[str, Collection[object]] = {
    "ApiVersions.api_keys": {key for key in ApiKey if key not in SERVED_APIS},
    "CreateTopics.topics[].configs": _KEYS_NOT_OBEYED,
    "DescribeConfigs.results[].configs": _KEYS_NOT_OBEYED,
}

# Versions that Kafka 4 dropped and Barnabas serves for older clients.
NOT_IN_KAFKA: dict[str, Collection[object]] = {
    "CreateTopics.topics[].configs": {"message.downconversion.enable"},
    "DescribeConfigs.results[].configs": {"message.downconversion.enable"},
}

_COMPILED = [(re.compile(rule.pattern), rule) for rule in RULES]


def normalised(value: Any, pattern: str, side: Side) -> object:
    """The value that is compared: by the first rule whose pattern is the field's name or path."""
    name = pattern.rpartition(".")[2].removesuffix("[]")
    for expression, rule in _COMPILED:
        if expression.fullmatch(name) or expression.fullmatch(pattern):
            return rule.replace(value, side)
    return value


def keyed(items: Sequence[Any], pattern: str, side: Side) -> Iterator[tuple[object, Any]]:
    """Each item of a list with its place: its index, or its key where order means nothing."""
    key = UNORDERED.get(pattern)
    if key is None:
        yield from enumerate(items)
        return
    seen: dict[object, int] = {}
    for item in items:
        place = key(item, side)
        if place in (NOT_SERVED if side.name == "kafka" else NOT_IN_KAFKA).get(pattern, ()):
            continue
        seen[place] = seen.get(place, 0) + 1
        yield (place if seen[place] == 1 else f"{place}#{seen[place]}"), item
