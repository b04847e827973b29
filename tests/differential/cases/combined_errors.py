"""Requests with two errors: which of them is returned. `make mutations` found these cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.case import case
from differential.cases.produce import to
from differential.cases.topics import creating, deleting, growing, new
from differential.scene import batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.request import Values
    from differential.scene import Scene
    from differential.side import Side


@case(ApiKey.PRODUCE, [5, 9, 13])
def a_wrong_partition_comes_before_wrong_acks_and_records(scene: Scene) -> None:
    topic = scene.topic()
    for partition in (0, 7, -1):
        for acks in (2, -2, 1):
            for records in (batch(b"a"), b"", b"\0"):
                scene.compare(to(topic, records, partition=partition, acks=acks))


@case(ApiKey.OFFSET_DELETE)
def a_wrong_group_comes_before_no_topics(scene: Scene) -> None:
    topic = scene.topic()
    for group in (scene.name("group"), ""):
        for partitions in ([], [{"partition_index": 0}], [{"partition_index": 9}]):
            named = [{"name": topic, "partitions": partitions}]
            for topics in ([], named):
                scene.compare({"group_id": group, "topics": topics})


@case(ApiKey.ELECT_LEADERS)
def no_partitions_come_before_a_wrong_election(scene: Scene) -> None:
    for kind in (0, 1, 2, -1):
        scene.compare({"election_type": kind, "topic_partitions": [], "timeout_ms": 1000})


@case(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def a_wrong_cursor_for_topics_named_twice(scene: Scene) -> None:
    topic, other = scene.topic(), scene.topic()
    for names in ([topic, topic], [other, topic], [topic, other, topic]):
        for name, partition in (("a b", 0), (topic, -1), ("a b", -1)):
            cursor = {"topic_name": name, "partition_index": partition}
            scene.compare({"topics": [{"name": each} for each in names], "cursor": cursor})


# A timeout of 0 has no effect if the controller has no changes to make.
TIMES_MS = (10_000, 0, -1, -(1 << 31))


@case(ApiKey.CREATE_TOPICS)
def topics_that_are_not_created_and_a_timeout_of_0(scene: Scene) -> None:
    for timeout_ms in TIMES_MS:
        for count in (1, 0, 20_000):
            one, other = new(scene.name(), count), new(scene.name(), count)
            for topics in ([], [one, one], [one, other, one], [new("a/b")], [other, one, other]):
                scene.compare({"topics": topics, "timeout_ms": timeout_ms, "validate_only": True})


@case(ApiKey.CREATE_TOPICS)
def a_config_without_a_value_beside_another_error(scene: Scene) -> None:
    without = {"name": "retention.ms", "value": None}
    for configs in (
        [without, {"name": "retention.ms", "value": "1"}],
        [{"name": "retention.ms", "value": "1"}, without],
        [without, {"name": "no.such.key", "value": "1"}],
        [without, {"name": "retention.ms", "value": "many"}],
    ):
        for count in (1, 0):
            scene.compare(creating(new(scene.name(), count, configs=configs)))
        scene.compare(creating(new("a/b", configs=configs)))
        scene.compare(creating(new(scene.shared_topic(), configs=configs)))


@case(ApiKey.DELETE_TOPICS)
def topics_that_are_not_deleted_and_a_timeout_of_0(scene: Scene) -> None:
    topic, other = scene.topic(), scene.topic()
    for timeout_ms in (0, -1):
        for names in ((), (topic, topic), (topic, other, topic), ("absent",), (topic,)):
            scene.compare(deleting(*names, timeout_ms=timeout_ms))
    for names in ((topic, "absent", topic, ""), ("absent", "absent")):
        scene.compare(deleting(*names))


@case(ApiKey.DELETE_TOPICS, [6])
def topics_by_name_and_id_or_neither_and_a_timeout_of_0(scene: Scene) -> None:
    topic = scene.topic()
    for timeout_ms in (0, 10_000):
        for letters in ("b", "bb", "n", "nn", "bnbn", "ii", "bii", "nin", "bni", "ain"):
            scene.compare(_deleted_topics(topic, letters, timeout_ms))


def _deleted_topics(topic: str, letters: str, timeout_ms: int) -> Callable[[Side], Values]:
    """Name a topic for each letter: by both name and id, by neither, by id, by an absent id."""

    def values(side: Side) -> Values:
        own, absent = side.topic_id(topic), b"\7" * 16
        fields = {"b": (topic, own), "n": (None, bytes(16)), "i": (None, own), "a": (None, absent)}
        named = [dict(zip(("name", "topic_id"), fields[each], strict=True)) for each in letters]
        # An existing topic is named twice, by id and by name, so that it is not deleted.
        if "i" in letters:
            named.append({"name": topic, "topic_id": bytes(16)})
        return {"topics": named, "timeout_ms": timeout_ms}

    return values


@case(ApiKey.CREATE_PARTITIONS)
def partitions_that_are_not_added_and_a_timeout_of_0(scene: Scene) -> None:
    topic, other = scene.topic(), scene.topic()
    for timeout_ms in TIMES_MS:
        for count in (2, 1, 20_000):
            first, second = growing(topic, count)["topics"][0], growing(other, count)["topics"][0]
            for topics in ([], [first, first], [first, second, first], [second]):
                scene.compare({"topics": topics, "timeout_ms": timeout_ms, "validate_only": True})


@case(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def no_topics_and_a_timeout_of_0(scene: Scene) -> None:
    topic = scene.topic()
    partitions = [{"partition_index": 0, "replicas": [1]}]
    for timeout_ms in (*TIMES_MS, 1000):
        for topics in (
            [],
            [{"name": topic, "partitions": []}],
            [{"name": topic, "partitions": partitions}],
        ):
            for flag in (True, False):
                scene.compare(
                    {
                        "timeout_ms": timeout_ms,
                        "allow_replication_factor_change": flag,
                        "topics": topics,
                    }
                )


@case(ApiKey.ELECT_LEADERS)
def no_partitions_and_a_timeout_of_0(scene: Scene) -> None:
    topic = scene.topic()
    for timeout_ms in TIMES_MS:
        for partitions in ([], [{"topic": topic, "partitions": []}]):
            for kind in (0, 1, 5):
                scene.compare(
                    {
                        "election_type": kind,
                        "topic_partitions": partitions,
                        "timeout_ms": timeout_ms,
                    }
                )


@case(ApiKey.OFFSET_COMMIT)
def unknown_topics_beside_known_topics(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.name("group")
    for named in _partitions_of(topic):
        scene.compare(
            lambda side, named=named: {
                "group_id": group,
                "topics": [
                    {
                        "name": name,
                        "topic_id": side.topic_id(topic) if name == topic else name.encode() * 16,
                        "partitions": [
                            {"partition_index": index, "committed_offset": 1} for index in indexes
                        ],
                    }
                    for name, indexes in named
                ],
            }
        )


@case(ApiKey.OFFSET_DELETE)
def offsets_of_unknown_topics_beside_known_topics(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.name("group")
    committed = [{"partition_index": index, "committed_offset": 1} for index in (0, 1)]
    topics = [{"name": topic, "partitions": committed}]
    for named in _partitions_of(topic):
        scene.do(ApiKey.OFFSET_COMMIT, 8, {"group_id": group, "topics": topics})
        requested = [
            {"name": name, "partitions": [{"partition_index": each} for each in indexes]}
            for name, indexes in named
        ]
        scene.compare({"group_id": group, "topics": requested})


def _partitions_of(topic: str) -> list[list[tuple[str, list[int]]]]:
    """Return existing and unknown topics ("x", "y") and partitions in several orders."""
    return [
        [("x", [])],
        [("x", [0]), ("x", [1])],
        [("x", []), ("x", [])],
        [(topic, [])],
        [(topic, [0, 9, 1])],
        [(topic, [9, 0])],
        [(topic, [0]), ("x", []), (topic, [1])],
        [(topic, [0]), (topic, [1])],
        [(topic, [0]), (topic, [0, 9])],
        [("y", [0]), (topic, [1, 7]), ("x", [0]), ("y", [2])],
        [(topic, []), ("x", [])],
    ]


@case(ApiKey.PRODUCE)
def invalid_records_beside_valid_records(scene: Scene) -> None:
    topic = scene.topic(2)
    good, none = batch(b"a"), b"\xff" * 70
    strange = bytearray(good)
    strange[16] = 9
    short = bytes(11) + b"\xff" * 9
    for records in (
        [(0, none)],
        [(0, good), (1, none)],
        [(0, none), (1, good)],
        [(9, none), (0, good)],
        [(0, b""), (1, none)],
        [(0, bytes(strange))],
        [(0, bytes(strange[:-1])), (1, good)],
        [(0, good[:-1]), (1, good)],
        [(0, short), (1, good)],
        [(0, good[:11]), (1, good)],
        [(0, good[:20]), (1, good)],
        [(0, bytes(strange[:20])), (1, good)],
        [(0, none), (0, good)],
        [(0, good), (0, none)],
        [(0, b""), (0, good)],
        [(0, good), (0, b"")],
    ):
        scene.compare(_appending(topic, records))
        scene.compare(end_offsets(topic), ApiKey.LIST_OFFSETS, 5)
    for records in ([(0, none)], [(0, good), (0, none)], [(0, b"")]):
        scene.compare(_appending("absent", records))


def _appending(topic: str, records: list[tuple[int, bytes]]) -> Callable[[Side], Values]:
    data = [{"index": index, "records": each} for index, each in records]

    def values(side: Side) -> Values:
        topic_id = b"\7" * 16 if topic == "absent" else side.topic_id(topic)
        named = {"name": topic, "topic_id": topic_id, "partition_data": data}
        return {"acks": -1, "timeout_ms": 5000, "topic_data": [named]}

    return values


def end_offsets(topic: str) -> Values:
    """Return a ListOffsets of the ends of a topic's two partitions."""
    partitions = [{"partition_index": index, "timestamp": -1} for index in (0, 1)]
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}


@case(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def quotas_of_all_entities(scene: Scene) -> None:
    names = [scene.name("client"), scene.name("client")]
    entries = [
        {
            "entity": [{"entity_type": "client-id", "entity_name": name}],
            "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
        }
        for name in names
    ]
    scene.compare({"entries": entries, "validate_only": False}, ApiKey.ALTER_CLIENT_QUOTAS, 1)
    scene.settle()

    def keep_own(response: Any) -> None:
        entries = response.entries or []
        entries[:] = [each for each in entries if each.entity[0].entity_name in names]

    scene.before_comparing = keep_own
    for strict in (False, True):
        scene.compare({"components": [], "strict": strict})
        for kind in ("client-id", "user"):
            scene.compare(
                {"components": [{"entity_type": kind, "match_type": 2}], "strict": strict}
            )


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def an_unknown_type_comes_before_a_wrong_change(scene: Scene) -> None:
    topic = scene.topic()
    for kind in (1, 3, -1, 127):
        for operation in (0, 1, 2, 3):
            configs = [{"name": "retention.ms", "config_operation": operation, "value": "1"}]
            for value in ("1", None):
                configs[0]["value"] = value
                scene.compare({"resources": [_resource(kind, topic, configs)]})


@case(ApiKey.DESCRIBE_CONFIGS)
def an_unknown_type_beside_known_types(scene: Scene) -> None:
    topic = scene.topic()
    for kinds in ((2, 1), (3, 2), (-1, 4, 2), (0, 0)):
        for name in (topic, "1", ""):
            resources = [
                {
                    "resource_type": kind,
                    "resource_name": topic if kind == 2 else name,
                    "configuration_keys": ["retention.ms", "num.partitions"],
                }
                for kind in kinds
            ]
            scene.compare({"resources": resources})


def _resource(kind: int, name: str, configs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configs": configs}


@case(ApiKey.DESCRIBE_QUORUM)
def the_metadata_topic_named_with_others_or_without_partitions(scene: Scene) -> None:
    metadata = "__cluster_metadata"
    for named in (
        [(metadata, []), (metadata, [0])],
        [(metadata, [0]), ("x", [])],
        [(metadata, [0]), (metadata, [0])],
        [(metadata, [0, 0])],
        [(metadata, [])],
        [],
    ):
        topics = [
            {"topic_name": name, "partitions": [{"partition_index": each} for each in indexes]}
            for name, indexes in named
        ]
        scene.compare({"topics": topics})


@case(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def a_wrong_cursor_for_no_topics(scene: Scene) -> None:
    for name, partition in (("", -1), (scene.topic(), -1), ("a b", -(1 << 31))):
        scene.compare({"topics": [], "cursor": {"topic_name": name, "partition_index": partition}})
