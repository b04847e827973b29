"""Changing configs: operations on keys, and validation of the result for each resource."""

from __future__ import annotations

import pytest

from barnabas.controller.config_changes import ConfigOperation
from barnabas.metadata.configs_image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_configs import (
    AlterableConfig as LegacyConfig,
    AlterConfigsRequest,
    AlterConfigsResource as LegacyResource,
)
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.records.topics import PartitionChangeRecord
from steps import finish
from unit.controller.parts import applied, configs_of, kinds, view_of
from unit.metadata.clusters import config, image_of, partition, three_brokers, topic, topic_id

SET, DELETE, APPEND, SUBTRACT = ConfigOperation

IMAGE = three_brokers(
    topic("a", 1),
    partition(1, 0, (1, 2, 3)),
    topic("__consumer_offsets", 2),
    partition(2),
    config(TOPIC, "a", "retention.ms", "5"),
)


def resource(kind: int, name: str, *changes: tuple[str, int, str | None]) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


def request(
    *resources: AlterConfigsResource, validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)


def error_of(
    *changes: tuple[str, int, str | None], kind: int = TOPIC, name: str = "a"
) -> ErrorCode:
    result = finish(
        configs_of().alter_incrementally(view_of(IMAGE), request(resource(kind, name, *changes)))
    )
    (answer,) = result.response.responses
    assert bool(answer.error_message) == (answer.error_code != ErrorCode.NONE)
    return ErrorCode(answer.error_code)


def test_keys_are_set_and_removed() -> None:
    changes = resource(TOPIC, "a", ("segment.ms", SET, "7"), ("retention.ms", DELETE, None))
    result = finish(configs_of().alter_incrementally(view_of(IMAGE), request(changes)))
    assert kinds(result.records) == [("ConfigRecord", 0)] * 2
    assert dict(applied(IMAGE, result.records).configs.get(TOPIC, "a")) == {"segment.ms": "7"}


def test_an_unchanged_value_writes_no_record() -> None:
    changes = resource(TOPIC, "a", ("retention.ms", SET, "5"), ("segment.ms", DELETE, None))
    result = finish(configs_of().alter_incrementally(view_of(IMAGE), request(changes)))
    assert result.records == []
    assert result.response.responses[0].error_code == ErrorCode.NONE


def test_append_and_subtract_use_the_current_value() -> None:
    name = "__consumer_offsets"
    grown = resource(TOPIC, name, ("cleanup.policy", APPEND, "compact,delete"))
    image = applied(
        IMAGE, finish(configs_of().alter_incrementally(view_of(IMAGE), request(grown))).records
    )
    assert image.configs.get(TOPIC, name)["cleanup.policy"] == "delete,compact"
    shrunk = resource(TOPIC, name, ("cleanup.policy", SUBTRACT, "delete"))
    image = applied(
        image, finish(configs_of().alter_incrementally(view_of(image), request(shrunk))).records
    )
    assert image.configs.get(TOPIC, name)["cleanup.policy"] == "compact"


def test_a_list_cannot_exceed_the_limit_of_a_record() -> None:
    key = "leader.replication.throttled.replicas"
    image = IMAGE
    for part in range(2):
        value = ",".join(f"{part}{number:05}:1" for number in range(3_000))
        grown = request(resource(TOPIC, "a", (key, APPEND, value)))
        result = finish(configs_of().alter_incrementally(view_of(image), grown))
        image = applied(image, result.records)
    refused = result.response.responses[0]
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "exceeds the maximum value size of 32767 bytes" in refused.error_message
    assert image.configs.get(TOPIC, "a")[key].count(",") == 2_999


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", APPEND, "shred"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", SET, "compact"), ErrorCode.NONE),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (("no.such.key", DELETE, None), ErrorCode.NONE),
    ],
)
def test_an_invalid_change_is_refused(
    change: tuple[str, int, str | None], error: ErrorCode
) -> None:
    assert error_of(change) == error


def test_one_invalid_key_leaves_its_resource_unchanged() -> None:
    bad = resource(TOPIC, "a", ("segment.ms", SET, "7"), ("retention.ms", SET, "x"))
    good = resource(BROKER, "1", ("message.max.bytes", SET, "7000"))
    result = finish(configs_of().alter_incrementally(view_of(IMAGE), request(bad, good)))
    assert [each.error_code for each in result.response.responses] == [
        ErrorCode.INVALID_CONFIG,
        ErrorCode.NONE,
    ]
    assert len(result.records) == 1


def test_a_key_or_a_resource_named_twice_is_an_invalid_request() -> None:
    assert (
        error_of(("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
        == ErrorCode.INVALID_REQUEST
    )
    twice = resource(TOPIC, "a", ("retention.ms", SET, "1"))
    result = finish(configs_of().alter_incrementally(view_of(IMAGE), request(twice, twice)))
    assert [each.error_code for each in result.response.responses] == [
        ErrorCode.INVALID_REQUEST
    ] * 2
    assert result.records == []


def test_a_missing_resource_is_an_error() -> None:
    change = ("retention.ms", SET, "1")
    assert error_of(change, name="x") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(change, kind=BROKER, name="one") == ErrorCode.INVALID_REQUEST
    assert error_of(change, kind=BROKER_LOGGER, name="1") == ErrorCode.INVALID_REQUEST


def test_a_broker_key_that_needs_a_restart_is_refused() -> None:
    change = ("broker.session.timeout.ms", SET, "1")
    assert error_of(change, kind=BROKER, name="") == ErrorCode.INVALID_REQUEST
    assert error_of(("broker.session.timeout.ms", DELETE, None), kind=BROKER, name="") == (
        ErrorCode.NONE
    )
    assert error_of(("message.max.bytes", SET, "x"), kind=BROKER, name="") == (
        ErrorCode.INVALID_REQUEST
    )
    assert error_of(("a.plug.ins.key", SET, "x"), kind=BROKER, name="1") == ErrorCode.NONE


def test_memory_of_the_log_cleaner_is_checked_with_the_number_of_its_processes() -> None:
    memory, threads = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
    for changes, error in (
        ([(memory, SET, str(1 << 20))], ErrorCode.INVALID_REQUEST),
        ([(memory, SET, str((1 << 20) + 1))], ErrorCode.NONE),
        ([(threads, SET, "128")], ErrorCode.INVALID_REQUEST),
        ([(threads, SET, "127")], ErrorCode.NONE),
        ([(threads, SET, "4"), (memory, SET, str(4 << 20))], ErrorCode.INVALID_REQUEST),
        ([(memory, DELETE, None)], ErrorCode.NONE),
    ):
        assert error_of(*changes, kind=BROKER, name="") == error


def test_defaults_of_local_retention_and_copy_lag_are_within_the_wider_value() -> None:
    total, local = "log.retention.ms", "log.local.retention.ms"
    for changes, error in (
        ([(local, SET, "604800001")], ErrorCode.INVALID_REQUEST),
        ([(local, SET, "604800000")], ErrorCode.NONE),
        ([(local, SET, "-1")], ErrorCode.INVALID_REQUEST),
        ([(local, SET, "-1"), (total, SET, "-1")], ErrorCode.NONE),
        ([(local, SET, "6"), (total, SET, "5")], ErrorCode.INVALID_REQUEST),
        ([("log.local.retention.bytes", SET, "6")], ErrorCode.NONE),
        ([("log.remote.copy.lag.ms", SET, "604800001")], ErrorCode.INVALID_REQUEST),
        ([("log.remote.copy.lag.ms", SET, "6"), (local, SET, "5")], ErrorCode.INVALID_REQUEST),
        ([("log.remote.copy.lag.ms", SET, "5"), (local, SET, "5")], ErrorCode.NONE),
        ([(local, DELETE, None)], ErrorCode.NONE),
    ):
        assert error_of(*changes, kind=BROKER, name="") == error, changes


def test_a_topic_keeps_its_remote_tier() -> None:
    key = "remote.storage.enable"
    image = image_of(config(TOPIC, "a", key, "true"), base=IMAGE)
    control = configs_of(remote__log__storage__system__enable="true")
    for change, error in (
        ((key, SET, "false"), ErrorCode.INVALID_CONFIG),
        ((key, DELETE, None), ErrorCode.INVALID_CONFIG),
        ((key, SET, "true"), ErrorCode.NONE),
        (("remote.log.copy.disable", SET, "true"), ErrorCode.NONE),
        (("cleanup.policy", SET, "compact"), ErrorCode.INVALID_CONFIG),
    ):
        changes = request(resource(TOPIC, "a", change))
        result = finish(control.alter_incrementally(view_of(image), changes))
        assert result.response.responses[0].error_code == error, change


def test_validate_only_writes_no_record() -> None:
    changes = resource(TOPIC, "a", ("segment.ms", SET, "7"))
    result = finish(
        configs_of().alter_incrementally(view_of(IMAGE), request(changes, validate_only=True))
    )
    assert result.records == []
    assert result.response.responses[0].error_code == ErrorCode.NONE


def test_a_new_min_insync_replicas_clears_eligible_replicas() -> None:
    image = image_of(
        PartitionChangeRecord(
            partition_id=0, topic_id=topic_id(1), isr=[1], eligible_leader_replicas=[2]
        ),
        base=IMAGE,
    )
    changes = resource(TOPIC, "a", ("min.insync.replicas", SET, "2"))
    result = finish(configs_of().alter_incrementally(view_of(image), request(changes)))
    assert kinds(result.records) == [("ConfigRecord", 0), ("ClearElrRecord", 0)]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("metrics", SET, "org.apache.kafka.producer."), ErrorCode.NONE),
        (("metrics", APPEND, "more."), ErrorCode.INVALID_CONFIG),
        (("interval.ms", SET, "99"), ErrorCode.INVALID_REQUEST),
        (("interval.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("match", SET, "client_id=a.*,client_software_name=librdkafka"), ErrorCode.NONE),
        (("match", SET, "client_id"), ErrorCode.INVALID_CONFIG),
        (("match", SET, "colour=red"), ErrorCode.INVALID_CONFIG),
        (("match", SET, "client_id=("), ErrorCode.INVALID_CONFIG),
        (("no.such.key", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_subscriptions_of_client_metrics_are_checked(
    change: tuple[str, int, str | None], error: ErrorCode
) -> None:
    assert error_of(change, kind=CLIENT_METRICS, name="all") == error
    assert error_of(change, kind=CLIENT_METRICS, name="") in (
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONFIG,
    )


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("consumer.session.timeout.ms", SET, "50000"), ErrorCode.NONE),
        (("consumer.session.timeout.ms", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("consumer.heartbeat.interval.ms", SET, "15001"), ErrorCode.INVALID_CONFIG),
        (("share.session.timeout.ms", SET, "44999"), ErrorCode.INVALID_CONFIG),
        (("share.record.lock.duration.ms", SET, "60000"), ErrorCode.NONE),
        (("share.record.lock.duration.ms", SET, "60001"), ErrorCode.INVALID_CONFIG),
        (("share.delivery.count.limit", SET, "11"), ErrorCode.INVALID_CONFIG),
        (("share.partition.max.record.locks", SET, "99"), ErrorCode.INVALID_CONFIG),
        (("share.assignment.interval.ms", SET, "0"), ErrorCode.NONE),
        (("share.auto.offset.reset", SET, "by_duration:P1DT2H"), ErrorCode.NONE),
        (("share.auto.offset.reset", SET, "none"), ErrorCode.INVALID_CONFIG),
        (("share.isolation.level", SET, "read_committed"), ErrorCode.NONE),
        (("share.isolation.level", SET, "READ_COMMITTED"), ErrorCode.INVALID_CONFIG),
        (("share.renew.acknowledge.enable", SET, "false"), ErrorCode.NONE),
        (("streams.session.timeout.ms", SET, "44999"), ErrorCode.INVALID_CONFIG),
        (("streams.heartbeat.interval.ms", SET, "15001"), ErrorCode.INVALID_CONFIG),
        (("streams.num.standby.replicas", SET, "2"), ErrorCode.NONE),
        (("streams.num.standby.replicas", SET, "3"), ErrorCode.INVALID_CONFIG),
        (("streams.num.warmup.replicas", SET, "21"), ErrorCode.INVALID_CONFIG),
        (("streams.task.offset.interval.ms", SET, "14999"), ErrorCode.INVALID_CONFIG),
        (("streams.task.offset.interval.ms", SET, "900000"), ErrorCode.NONE),
        (("streams.initial.rebalance.delay.ms", SET, "0"), ErrorCode.NONE),
        (("streams.acceptable.recovery.lag", SET, "-1"), ErrorCode.INVALID_CONFIG),
        (("streams.rack.aware.assignment.tags", SET, "zone,rack"), ErrorCode.NONE),
        (("streams.rack.aware.assignment.tags", SET, "zone,zone"), ErrorCode.INVALID_CONFIG),
        (("streams.assignor.name", SET, "sticky"), ErrorCode.NONE),
        (("streams.assignor.name", SET, "mine"), ErrorCode.INVALID_CONFIG),
        (("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_configs_of_groups_are_checked(
    change: tuple[str, int, str | None], error: ErrorCode
) -> None:
    assert error_of(change, kind=GROUP, name="g") == error
    assert error_of(change, kind=GROUP, name="") == ErrorCode.INVALID_REQUEST


def test_compaction_lags_are_validated_together_with_current_values() -> None:
    image = image_of(config(TOPIC, "a", "max.compaction.lag.ms", "5"), base=IMAGE)
    changes = resource(TOPIC, "a", ("min.compaction.lag.ms", SET, "10"))
    result = finish(configs_of().alter_incrementally(view_of(image), request(changes)))
    assert result.response.responses[0].error_code == ErrorCode.INVALID_CONFIG


def replacement(kind: int, name: str, **configs: str | None) -> AlterConfigsRequest:
    given = [
        LegacyConfig(name=key.replace("__", "."), value=value) for key, value in configs.items()
    ]
    wanted = LegacyResource(resource_type=kind, resource_name=name, configs=given)
    return AlterConfigsRequest(resources=[wanted], validate_only=False)


def test_alter_configs_replaces_all_configs() -> None:
    result = finish(configs_of().alter(view_of(IMAGE), replacement(TOPIC, "a", segment__ms="7")))
    assert dict(applied(IMAGE, result.records).configs.get(TOPIC, "a")) == {"segment.ms": "7"}
    result = finish(configs_of().alter(view_of(IMAGE), replacement(TOPIC, "a", segment__ms=None)))
    assert result.response.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert not result.records


def test_the_default_min_insync_replicas_cannot_be_removed() -> None:
    image = image_of(config(BROKER, "", "min.insync.replicas", "1"), base=IMAGE)
    result = finish(
        configs_of().alter(view_of(image), replacement(BROKER, "", message__max__bytes="7"))
    )
    assert result.response.responses[0].error_code == ErrorCode.INVALID_CONFIG
    one = resource(BROKER, "1", ("min.insync.replicas", SET, "1"))
    answer = finish(
        configs_of().alter_incrementally(view_of(image), request(one))
    ).response.responses[0]
    assert answer.error_code == ErrorCode.INVALID_CONFIG
