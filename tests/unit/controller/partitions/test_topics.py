"""Creating and deleting topics: names, counts, assignments and configs."""

from __future__ import annotations

import pytest

from barnabas.controller.config_rules import ConfigSource
from barnabas.metadata.configs_image import BROKER, TOPIC
from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.topics import (
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.records.topics import PartitionRecord
from barnabas.protocol.schema import ZERO_UUID
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC, SYSTEM_ENABLE
from steps import counted, finish
from unit.controller.parts import applied, creation, kinds, new_topic, topics_of, view_of
from unit.metadata.clusters import (
    broker,
    config,
    directory,
    feature,
    image_of,
    partition,
    three_brokers,
    topic,
    topic_id,
)


def errors_of(response: CreateTopicsResponse) -> dict[str, ErrorCode]:
    return {each.name: ErrorCode(each.error_code) for each in response.topics}


def test_a_new_topic_writes_topic_config_and_partition_records_in_order() -> None:
    image = three_brokers()
    request = creation(new_topic("a", 2, configs={"retention.ms": "5"}))
    result = finish(topics_of().create(view_of(image), request))
    assert kinds(result.records) == [
        ("TopicRecord", 0),
        ("ConfigRecord", 0),
        ("PartitionRecord", 2),
        ("PartitionRecord", 2),
    ]
    after = applied(image, result.records)
    made = after.topics.by_name("a")
    assert made is not None
    assert made.id == result.response.topics[0].topic_id
    assert dict(after.configs.get(TOPIC, "a")) == {"retention.ms": "5"}


def test_the_first_replica_leads_a_new_partition_in_epoch_zero() -> None:
    request = creation(new_topic("a", -1, -1, assignments={0: [2, 3]}))
    records = finish(topics_of().create(view_of(three_brokers()), request)).records
    record = records[-1][0]
    assert isinstance(record, PartitionRecord)
    assert (record.replicas, record.isr, record.leader) == ([2, 3], [2, 3], 2)
    assert (record.leader_epoch, record.partition_epoch) == (0, 0)
    assert record.directories == [directory(2), directory(3)]


def test_a_fenced_replica_is_not_in_the_isr_and_does_not_lead() -> None:
    image = image_of(feature(), broker(1, fenced=True), broker(2))
    request = creation(new_topic("a", -1, -1, assignments={0: [1, 2]}))
    record = finish(topics_of().create(view_of(image), request)).records[-1][0]
    assert isinstance(record, PartitionRecord)
    assert (record.replicas, record.isr, record.leader) == ([1, 2], [2], 2)


def test_records_have_directories_since_a_metadata_version() -> None:
    image = image_of(feature(level=16), broker(1))
    records = finish(topics_of().create(view_of(image), creation(new_topic("a")))).records
    assert kinds(records)[-1] == ("PartitionRecord", 0)


@pytest.mark.parametrize(
    ("name", "fault"),
    [("", "empty"), (".", "named"), ("..", "named"), ("a" * 250, "249"), ("a b", "characters"),
     ("ä", "characters")],
)  # fmt: skip
def test_an_invalid_name_is_refused(name: str, fault: str) -> None:
    response = finish(
        topics_of().create(view_of(three_brokers()), creation(new_topic(name)))
    ).response
    assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert fault in (response.topics[0].error_message or "")


def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    image = three_brokers(topic("a.b_c", 1), partition(1))
    request = creation(new_topic("a_b.c"), new_topic("x.y"), new_topic("x_y"), new_topic("a-b-c"))
    response = finish(topics_of().create(view_of(image), request)).response
    assert errors_of(response) == {
        "a_b.c": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "x.y": ErrorCode.NONE,
        "x_y": ErrorCode.NONE,
        "a-b-c": ErrorCode.NONE,
    }


def test_a_refused_topic_does_not_affect_other_topics() -> None:
    image = three_brokers(topic("old", 1), partition(1))
    request = creation(
        new_topic("old"),
        new_topic("good"),
        new_topic("zero", 0),
        new_topic("wide", 1, 4),
        new_topic("none", 1, 0),
        new_topic("odd", configs={"no.such.key": "1"}),
        new_topic("twice"),
        new_topic("twice"),
    )
    result = finish(topics_of().create(view_of(image), request))
    assert errors_of(result.response) == {
        "old": ErrorCode.TOPIC_ALREADY_EXISTS,
        "good": ErrorCode.NONE,
        "zero": ErrorCode.INVALID_PARTITIONS,
        "wide": ErrorCode.INVALID_REPLICATION_FACTOR,
        "none": ErrorCode.INVALID_REPLICATION_FACTOR,
        "odd": ErrorCode.INVALID_CONFIG,
        "twice": ErrorCode.INVALID_REQUEST,
    }
    assert kinds(result.records) == [("TopicRecord", 0), ("PartitionRecord", 2)]


def test_missing_counts_come_from_the_configuration() -> None:
    control = topics_of(num__partitions="5", default__replication__factor="2")
    answer = finish(
        control.create(view_of(three_brokers()), creation(new_topic("a", -1, -1)))
    ).response
    assert (answer.topics[0].num_partitions, answer.topics[0].replication_factor) == (5, 2)


@pytest.mark.parametrize(
    ("assignments", "counts", "error"),
    [
        ({0: [1], 1: [2]}, (-1, -1), ErrorCode.NONE),
        ({0: [1]}, (1, -1), ErrorCode.INVALID_REQUEST),
        ({0: [1]}, (-1, 1), ErrorCode.INVALID_REQUEST),
        ({0: [1], 2: [2]}, (-1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: []}, (-1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 1]}, (-1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [9]}, (-1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1], 1: [2, 3]}, (-1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_manual_assignments_are_validated(
    assignments: dict[int, list[int]], counts: tuple[int, int], error: ErrorCode
) -> None:
    request = creation(new_topic("a", *counts, assignments=assignments))
    response = finish(topics_of().create(view_of(three_brokers()), request)).response
    assert response.topics[0].error_code == error


def test_an_assignment_with_only_fenced_replicas_is_refused() -> None:
    image = image_of(feature(), broker(1, fenced=True), broker(2))
    request = creation(new_topic("a", -1, -1, assignments={0: [1]}))
    response = finish(topics_of().create(view_of(image), request)).response
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_without_a_live_broker_no_topic_is_created() -> None:
    image = image_of(feature(), broker(1, fenced=True))
    response = finish(topics_of().create(view_of(image), creation(new_topic("a")))).response
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_validate_only_writes_no_record_and_returns_the_same_response() -> None:
    request = creation(new_topic("a", 3), new_topic("b c"), validate_only=True)
    result = finish(topics_of().create(view_of(three_brokers()), request))
    assert result.records == []
    assert errors_of(result.response) == {
        "a": ErrorCode.NONE,
        "b c": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert result.response.topics[0].num_partitions == 3


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete, compact"])
def test_topics_may_be_compacted(policy: str) -> None:
    request = creation(new_topic("a", configs={"cleanup.policy": policy}))
    (answer,) = finish(topics_of().create(view_of(three_brokers()), request)).response.topics
    assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "configs",
    [{"retention.ms": "soon"}, {"retention.ms": "-2"}, {"segment.bytes": "5"},
     {"retention.ms": None}, {"cleanup.policy": "shred"}],
)  # fmt: skip
def test_an_invalid_config_error_names_the_key(configs: dict[str, str | None]) -> None:
    request = creation(new_topic("a", configs=configs))
    (answer,) = finish(topics_of().create(view_of(three_brokers()), request)).response.topics
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert next(iter(configs)) in (answer.error_message or "")


def test_the_response_contains_all_configs_with_their_sources() -> None:
    image = three_brokers(config(BROKER, "", "message.max.bytes", "2000"))
    control = topics_of(log__retention__hours="1")
    request = creation(new_topic("a", configs={"max.message.bytes": "3000"}))
    (answer,) = finish(control.create(view_of(image), request)).response.topics
    shown = {each.name: (each.value, each.config_source) for each in answer.configs or []}
    assert shown["max.message.bytes"] == ("3000", ConfigSource.TOPIC)
    assert shown["retention.ms"] == ("3600000", ConfigSource.STATIC_BROKER)
    assert shown["cleanup.policy"] == ("delete", ConfigSource.DEFAULT)
    (other,) = finish(control.create(view_of(image), creation(new_topic("b")))).response.topics
    shown = {each.name: (each.value, each.config_source) for each in other.configs or []}
    assert shown["max.message.bytes"] == ("2000", ConfigSource.DYNAMIC_DEFAULT_BROKER)


def test_a_request_for_too_many_partitions_is_refused() -> None:
    for counts in ((6000, 4001), (10_000,), (1, 10_001)):
        topics = [new_topic(f"t{place}", count) for place, count in enumerate(counts)]
        request = creation(*topics, validate_only=True)
        response = finish(topics_of().create(view_of(three_brokers()), request)).response
        assert set(errors_of(response).values()) == {ErrorCode.POLICY_VIOLATION}
    response = finish(
        topics_of().create(view_of(three_brokers()), creation(new_topic("a", 9_999)))
    ).response
    assert errors_of(response) == {"a": ErrorCode.NONE}


def test_the_name_of_the_metadata_log_is_refused() -> None:
    request = creation(new_topic("__cluster_metadata"))
    response = finish(topics_of().create(view_of(three_brokers()), request)).response
    assert errors_of(response) == {"__cluster_metadata": ErrorCode.INVALID_REQUEST}


def test_responses_can_be_encoded_in_every_version() -> None:
    image = three_brokers(topic("old", 1), partition(1))
    request = creation(new_topic("a"), new_topic("old"))
    response = finish(topics_of().create(view_of(image), request)).response
    for version in range(8):
        decode(CreateTopicsResponse, version, encode_bytes(response, version))


def deletion(*names: str, ids: tuple[bytes, ...] = ()) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topic_names=list(names),
        topics=[DeleteTopicState(name=None, topic_id=each) for each in ids],
        timeout_ms=0,
    )


def test_topics_are_deleted_by_name_and_by_id() -> None:
    image = three_brokers(topic("a", 1), partition(1), topic("b", 2), partition(2))
    request = deletion("a", ids=(topic_id(2),))
    result = finish(topics_of().delete(view_of(image), request))
    assert [(each.name, each.error_code) for each in result.response.responses] == [
        ("a", 0),
        ("b", 0),
    ]
    assert len(applied(image, result.records).topics) == 0


def test_unknown_topics_are_errors_by_name_and_by_id() -> None:
    response = finish(topics_of().delete(view_of(three_brokers()), deletion("a", ids=(b"x" * 16,))))
    assert [each.error_code for each in response.response.responses] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]


def test_a_topic_given_by_name_and_by_id_is_not_deleted() -> None:
    image = three_brokers(topic("a", 1), partition(1), topic("b", 2), partition(2))
    result = finish(topics_of().delete(view_of(image), deletion("a", "b", ids=(topic_id(1),))))
    assert [each.error_code for each in result.response.responses] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert result.response.responses[0].topic_id == topic_id(1)
    assert len(result.records) == 1


def test_an_item_with_both_or_neither_of_name_and_id_is_invalid() -> None:
    image = three_brokers(topic("a", 1), partition(1))
    states = [
        DeleteTopicState(name="a", topic_id=topic_id(1)),
        DeleteTopicState(name=None, topic_id=ZERO_UUID),
    ]
    request = DeleteTopicsRequest(topics=states, timeout_ms=0)
    response = finish(topics_of().delete(view_of(image), request)).response
    assert [each.error_code for each in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    decode(DeleteTopicsResponse, 6, encode_bytes(response, 6))


def test_deletion_can_be_disabled() -> None:
    image = three_brokers(topic("a", 1), partition(1))
    control = topics_of(delete__topic__enable="false")
    (answer,) = finish(control.delete(view_of(image), deletion("a"))).response.responses
    assert answer.error_code == ErrorCode.TOPIC_DELETION_DISABLED


def test_the_metadata_of_remote_segments_is_kept_while_a_topic_is_tiered() -> None:
    tiered = config(TOPIC, "a", "remote.storage.enable", "true")
    untiered = config(TOPIC, "a", "remote.storage.enable", "false")
    topics = (topic("a", 1), partition(1), topic(REMOTE_LOG_TOPIC, 2), partition(2))
    request = deletion(REMOTE_LOG_TOPIC)

    def delete(*records: object, **keys: str) -> tuple[int, str | None]:
        image = three_brokers(*topics, *records)
        (answer,) = finish(topics_of(**keys).delete(view_of(image), request)).response.responses
        return answer.error_code, answer.error_message

    enabled = {SYSTEM_ENABLE.replace(".", "__"): "true"}
    code, message = delete(tiered, **enabled)
    assert code == ErrorCode.POLICY_VIOLATION
    assert "the topic a has remote.storage.enable=true" in (message or "")
    assert delete(untiered, **enabled)[0] == ErrorCode.NONE
    assert delete(tiered)[0] == ErrorCode.NONE


def test_the_steps_of_a_request_grow_with_its_partitions() -> None:
    steps = [
        counted(topics_of().create(view_of(three_brokers()), creation(new_topic("a", count, 1))))[1]
        for count in (10, 1000)
    ]
    # Three for the topic, one after its placement, and two for each partition.
    assert steps == [24, 2004]


def test_too_many_topics_are_refused_in_steps() -> None:
    request = creation(*(new_topic(f"topic-{number}", 1, 1) for number in range(10_001)))
    result, steps = counted(topics_of().create(view_of(three_brokers()), request))
    assert {each.error_code for each in result.response.topics} == {ErrorCode.POLICY_VIOLATION}
    assert steps > 20_000
