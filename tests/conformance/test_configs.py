"""Configs in requests: every type of resource, both ways to change them, and Kafka's errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_configs import (
    AlterableConfig as LegacyConfig,
    AlterConfigsRequest,
    AlterConfigsResource as LegacyResource,
)
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.raw_client import RawClient

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

Change = tuple[str, int, str | None]


def resource(kind: int, name: str, *changes: Change) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


def alter(raw: RawClient, *resources: AlterConfigsResource, validate_only: bool = False) -> Any:
    """Return the error of each resource."""
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    response: Any = raw.ask(request, 1)
    return [ErrorCode(each.error_code) for each in response.responses]


def describe(raw: RawClient, kind: int, name: str) -> dict[str, Any]:
    described = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[described], include_synonyms=True)
    response: Any = raw.ask(request, 4)
    (result,) = response.results
    assert result.error_code == ErrorCode.NONE, result
    return {each.name: each for each in result.configs}


def await_value(raw: RawClient, kind: int, name: str, key: str, value: str | None) -> Any:
    """Wait until the config has this value: Kafka's broker applies it after the response."""

    def applied() -> Any:
        found = describe(raw, kind, name).get(key)
        return found is not None and found.value == value and found

    return eventually(applied)


@pytest.mark.parametrize(
    ("kind", "name", "change", "error"),
    [
        (TOPIC, "no-such-topic", ("retention.ms", SET, "1"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (TOPIC, "no-such-topic", ("no.such", SET, "1"), "INVALID_CONFIG"),
        (TOPIC, "", ("retention.ms", SET, "1"), "INVALID_REQUEST"),
        (TOPIC, "a b", ("retention.ms", SET, "1"), "INVALID_TOPIC_EXCEPTION"),
        (BROKER, "77", ("message.max.bytes", SET, "1"), "INVALID_REQUEST"),
        (BROKER, "one", ("message.max.bytes", SET, "1"), "INVALID_REQUEST"),
        (BROKER, "1", ("message.max.bytes", SET, "x"), "INVALID_REQUEST"),
        (BROKER, "1", ("broker.session.timeout.ms", SET, "1"), "INVALID_REQUEST"),
        (BROKER, "1", ("broker.session.timeout.ms", DELETE, None), "NONE"),
        (BROKER, "1", ("message.max.bytes", APPEND, "1"), "INVALID_CONFIG"),
        (BROKER, "1", ("min.insync.replicas", SET, "1"), "INVALID_CONFIG"),
        (BROKER, "", ("min.insync.replicas", DELETE, None), "INVALID_CONFIG"),
        (BROKER, "", ("log.retention.ms", SET, "0"), "INVALID_REQUEST"),
        (LOGGER, "77", ("root", SET, "INFO"), "INVALID_REQUEST"),
        (LOGGER, "1", ("no.such.logger", SET, "INFO"), "INVALID_CONFIG"),
        (LOGGER, "1", ("root", SET, "LOUD"), "INVALID_CONFIG"),
        (LOGGER, "1", ("root", DELETE, None), "INVALID_REQUEST"),
        (LOGGER, "1", ("root", APPEND, "INFO"), "INVALID_REQUEST"),
        (METRICS, "", ("metrics", SET, "a."), "INVALID_REQUEST"),
        (METRICS, "m", ("interval.ms", SET, "99"), "INVALID_REQUEST"),
        (METRICS, "m", ("match", SET, "colour=red"), "INVALID_CONFIG"),
        (METRICS, "m", ("no.such", SET, "1"), "INVALID_REQUEST"),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), "INVALID_REQUEST"),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "1"), "INVALID_CONFIG"),
        (GROUP, "g", ("no.such", SET, "1"), "INVALID_CONFIG"),
        (99, "g", ("no.such", SET, "1"), "INVALID_REQUEST"),
    ],
)
def test_an_invalid_change_is_refused(
    raw: RawClient, kind: int, name: str, change: Change, error: str
) -> None:
    assert alter(raw, resource(kind, name, change), validate_only=True) == [ErrorCode[error]]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("retention.ms", SET, None), "INVALID_REQUEST"),
        (("retention.ms", SET, "-2"), "INVALID_CONFIG"),
        (("retention.ms", APPEND, "1"), "INVALID_CONFIG"),
        (("compression.type", SET, "none"), "INVALID_CONFIG"),
        (("compression.gzip.level", SET, "0"), "INVALID_CONFIG"),
        (("segment.bytes", SET, "1000"), "INVALID_CONFIG"),
        (("no.such", DELETE, None), "NONE"),
    ],
)
def test_an_invalid_config_of_a_topic_is_refused(
    raw: RawClient, topic: str, change: Change, error: str
) -> None:
    assert alter(raw, resource(TOPIC, topic, change)) == [ErrorCode[error]]


def test_a_list_cannot_exceed_the_limit_of_a_string(raw: RawClient, topic: str) -> None:
    key = "leader.replication.throttled.replicas"

    def grown(first: int) -> list[ErrorCode]:
        value = ",".join(f"{number}:1" for number in range(first, first + 3_000))
        return alter(raw, resource(TOPIC, topic, (key, APPEND, value)))

    assert grown(10_000) == [ErrorCode.NONE]
    assert grown(20_000) == [ErrorCode.INVALID_CONFIG]
    eventually(
        lambda: describe(raw, TOPIC, topic)[key].value.count(",") == 2_999, lambda: "the list"
    )


def test_duplicate_resources_are_each_refused_in_order(raw: RawClient, topic: str) -> None:
    twice = resource(TOPIC, topic, ("retention.ms", SET, "1"))
    other = resource(BROKER, "77", ("message.max.bytes", SET, "1"))
    good = resource(BROKER, "", ("message.max.bytes", SET, "1048588"))
    assert alter(raw, twice, other, good, twice, validate_only=True) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]


def test_alter_configs_replaces_all_configs_of_a_topic(
    raw: RawClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(1, retention_ms="5000000")

    def replace(kind: int, name: str, **configs: str) -> int:
        entries = [
            LegacyConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ]
        changed = LegacyResource(resource_type=kind, resource_name=name, configs=entries)
        response: Any = raw.ask(AlterConfigsRequest(resources=[changed], validate_only=False), 2)
        code: int = response.responses[0].error_code
        return code

    assert replace(TOPIC, topic, segment_ms="7000000") == ErrorCode.NONE
    await_value(raw, TOPIC, topic, "segment.ms", "7000000")
    assert describe(raw, TOPIC, topic)["retention.ms"].config_source == 5
    assert replace(TOPIC, topic, segment_ms="x") == ErrorCode.INVALID_CONFIG
    assert replace(LOGGER, "1", root="INFO") == ErrorCode.INVALID_REQUEST


def test_broker_configs_are_described_with_their_sources(raw: RawClient, topic: str) -> None:
    key, topic_key = "log.index.interval.bytes", "index.interval.bytes"
    try:
        assert alter(raw, resource(BROKER, "", (key, SET, "5000"))) == [ErrorCode.NONE]
        assert alter(raw, resource(BROKER, "1", (key, SET, "6000"))) == [ErrorCode.NONE]
        expected = [(key, "6000", 2), (key, "5000", 3), (key, "4096", 5)]

        def value_and_synonyms(
            kind: int, name: str, key: str
        ) -> tuple[str, list[tuple[str, str, int]]]:
            found = describe(raw, kind, name)[key]
            return found.value, [(each.name, each.value, each.source) for each in found.synonyms]

        eventually_equal(lambda: value_and_synonyms(BROKER, "1", key), ("6000", expected))
        eventually_equal(lambda: value_and_synonyms(TOPIC, topic, topic_key), ("6000", expected))
        assert describe(raw, TOPIC, topic)[topic_key].config_source == 2
        assert set(describe(raw, BROKER, "")) >= {key}
    finally:
        alter(raw, resource(BROKER, "", (key, DELETE, None)))
        alter(raw, resource(BROKER, "1", (key, DELETE, None)))
    await_value(raw, BROKER, "1", key, "4096")


def test_unknown_keys_are_kept_and_hidden(raw: RawClient) -> None:
    assert alter(raw, resource(BROKER, "1", ("some.plug.in", SET, "secret"))) == [ErrorCode.NONE]
    config = eventually(lambda: describe(raw, BROKER, "1").get("some.plug.in"))
    assert (config.value, config.is_sensitive, config.read_only) == (None, True, True)
    assert alter(raw, resource(BROKER, "1", ("some.plug.in", DELETE, None))) == [ErrorCode.NONE]


def test_levels_of_loggers_change_while_the_broker_runs(raw: RawClient) -> None:
    before = describe(raw, LOGGER, "1")["root"]
    assert before.config_source == 6
    change = resource(LOGGER, "1", ("root", SET, "WARN"))
    assert alter(raw, change) == [ErrorCode.NONE]
    assert describe(raw, LOGGER, "1")["root"].value == "WARN"
    checked = resource(LOGGER, "1", ("root", SET, "TRACE"))
    assert alter(raw, checked, validate_only=True) == [ErrorCode.NONE]
    assert describe(raw, LOGGER, "1")["root"].value == "WARN"
    assert alter(raw, resource(LOGGER, "1", ("root", SET, before.value))) == [ErrorCode.NONE]


def listed(raw: RawClient, *types: int, version: int = 1) -> set[tuple[int, str]]:
    response: Any = raw.ask(ListConfigResourcesRequest(resource_types=list(types)), version)
    assert response.error_code == ErrorCode.NONE
    return {(each.resource_type, each.resource_name) for each in response.config_resources}


def test_subscriptions_and_groups_have_configs_and_are_listed(raw: RawClient, topic: str) -> None:
    subscription = resource(METRICS, "conformance", ("metrics", SET, "a.,b."))
    group = resource(GROUP, "conformance", ("consumer.session.timeout.ms", SET, "50000"))
    assert alter(raw, subscription, group) == [ErrorCode.NONE] * 2
    assert await_value(raw, METRICS, "conformance", "metrics", "a.,b.").config_source == 7
    found = await_value(raw, GROUP, "conformance", "consumer.session.timeout.ms", "50000")
    assert found.config_source == 8
    assert listed(raw) >= {
        (TOPIC, topic),
        (BROKER, "1"),
        (LOGGER, "1"),
        (METRICS, "conformance"),
        (GROUP, "conformance"),
    }
    assert listed(raw, version=0) >= {(METRICS, "conformance")}
    assert {kind for kind, _ in listed(raw, GROUP, METRICS)} == {GROUP, METRICS}
    wrong: Any = raw.ask(ListConfigResourcesRequest(resource_types=[99]), 1)
    assert wrong.error_code == ErrorCode.UNSUPPORTED_VERSION
    deletions = [
        resource(METRICS, "conformance", ("metrics", DELETE, None)),
        resource(GROUP, "conformance", ("consumer.session.timeout.ms", DELETE, None)),
    ]
    assert alter(raw, *deletions) == [ErrorCode.NONE] * 2
