"""Policies are foreign code on the controller's loop: failures, slowness, changed arguments."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.controller.config_rules import TopicConfigs
from barnabas.controller.partitions.placement import StripedPlacer
from barnabas.controller.partitions.topics import TopicControl
from barnabas.controller.policy_checks import PolicyChecks
from barnabas.metadata.configs_image import TOPIC
from barnabas.policies import (
    AlterConfigMetadata,
    AlterConfigPolicy,
    CreateTopicMetadata,
    CreateTopicPolicy,
    PolicyViolationError,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.rng import SeededRng
from barnabas.sim.clock import SimClock, SimScheduler
from steps import finish
from unit.controller.parts import applied, config_of, creation, new_topic, view_of
from unit.metadata.clusters import three_brokers


class Topics(CreateTopicPolicy):
    def __init__(self, validate: Callable[[CreateTopicMetadata], object]) -> None:
        self._validate = validate

    def validate(self, request_metadata: CreateTopicMetadata) -> None:
        self._validate(request_metadata)


class Configs(AlterConfigPolicy):
    def validate(self, request_metadata: AlterConfigMetadata) -> None:
        # A policy that changes what it was given.
        request_metadata.configs.clear()  # type: ignore[attr-defined]


def control(policies: PolicyChecks) -> TopicControl:
    config, rng = config_of(), SeededRng(1)
    return TopicControl(config, TopicConfigs(config), StripedPlacer(rng), rng, policies)


def checks(validate: Callable[[CreateTopicMetadata], object]) -> PolicyChecks:
    return PolicyChecks(SimClock(SimScheduler()), Topics(validate))


def refuse(metadata: CreateTopicMetadata) -> None:
    raise PolicyViolationError(f"{metadata.topic} is not wanted")


def test_a_refused_topic_takes_no_mutations_and_leaves_no_records() -> None:
    image = three_brokers()
    request = creation(new_topic("a"), new_topic("b"))
    result = finish(control(checks(refuse)).create(view_of(image), request))
    assert not result.records
    errors = [(each.error_code, each.error_message) for each in result.response.topics]
    code = ErrorCode.POLICY_VIOLATION
    assert errors == [(code, "a is not wanted"), (code, "b is not wanted")]


def test_a_policy_that_fails_refuses_one_topic(caplog: pytest.LogCaptureFixture) -> None:
    def fail_for_a(metadata: CreateTopicMetadata) -> None:
        assert metadata.topic != "a", "secret of the policy"

    image = three_brokers()
    request = creation(new_topic("a"), new_topic("b"))
    result = finish(control(checks(fail_for_a)).create(view_of(image), request))
    first, second = result.response.topics
    assert first.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "secret" not in first.error_message
    assert "secret of the policy" in caplog.text
    assert second.error_code == ErrorCode.NONE
    assert set(applied(image, result.records).topics.names()) == {"b"}


def test_a_slow_policy_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = SimScheduler()
    policies = PolicyChecks(SimClock(scheduler), Topics(lambda _: scheduler.run_for(30)))
    finish(control(policies).create(view_of(three_brokers()), creation(new_topic("a"))))
    assert "Slow policy" in caplog.text
    assert "policy=Topics duration_ms=30" in caplog.text


def test_a_policy_cannot_change_the_request() -> None:
    image = three_brokers()

    def change(metadata: CreateTopicMetadata) -> None:
        metadata.configs["retention.ms"] = "1"  # type: ignore[index]

    policies = PolicyChecks(SimClock(SimScheduler()), Topics(change), Configs())
    request = creation(new_topic("a", configs={"retention.ms": "5"}))
    result = finish(control(policies).create(view_of(image), request))
    assert dict(applied(image, result.records).configs.get(TOPIC, "a")) == {"retention.ms": "5"}
