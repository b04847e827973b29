"""Policies by name of a Python class: what is loaded, and what prevents the start of a node."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from barnabas import (
    AlterConfigMetadata,
    AlterConfigPolicy,
    CreateTopicMetadata,
    CreateTopicPolicy,
    PolicyViolationError,
)
from barnabas.controller.config import ALTER_CONFIG_POLICY, CREATE_TOPIC_POLICY
from barnabas.protocol.resources import ConfigResource, ResourceType
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.configs.policies import (
    close_policy,
    load_alter_config_policy,
    load_create_topic_policy,
)
from barnabas.settings.key import ConfigError
from barnabas.settings.properties import parse_properties

PAGE = Path(__file__).parents[4] / "docs/security.md"


class Topics(CreateTopicPolicy):
    configs: Mapping[str, str]

    def configure(self, configs: Mapping[str, str]) -> None:
        self.configs = configs

    def validate(self, request_metadata: CreateTopicMetadata) -> None:
        raise PolicyViolationError(request_metadata.topic)

    def close(self) -> None:
        raise OSError("already closed")


class Unfinished(CreateTopicPolicy):
    pass


class Unconfigurable(Topics):
    def configure(self, configs: Mapping[str, str]) -> None:
        raise KeyError("my.key")


def loaded(name: str, key: str = CREATE_TOPIC_POLICY, **own: str) -> object:
    given = {key: name, **own}
    load = load_create_topic_policy if key == CREATE_TOPIC_POLICY else load_alter_config_policy
    return load(read_configuration(given).parsed, given)


def test_a_policy_is_created_and_gets_all_properties() -> None:
    policy = loaded(f"{__name__}:Topics", my_key="7")
    assert isinstance(policy, Topics)
    assert policy.configs["my_key"] == "7"


def test_without_a_name_there_is_no_policy() -> None:
    assert load_create_topic_policy(read_configuration({}).parsed, {}) is None


@pytest.mark.parametrize("key", [CREATE_TOPIC_POLICY, ALTER_CONFIG_POLICY])
@pytest.mark.parametrize("name", ["com.example.Policy", "a:", ":B", "a.b:C$D", "a b:C"])
def test_a_java_class_is_refused_with_what_to_do(key: str, name: str) -> None:
    with pytest.raises(ConfigError, match=r"package\.module:Class.*docs/security\.md") as raised:
        read_configuration({key: name})
    assert raised.value.key == key


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module_of_policies:Topics", "PYTHONPATH.*No module named"),
        (f"{__name__}:Absent", "has no attribute 'Absent'"),
        (f"{__name__}:loaded", r"extends barnabas\.CreateTopicPolicy"),
        (f"{__name__}:Unfinished", "abstract"),
        (f"{__name__}:Unconfigurable", "KeyError: 'my.key'"),
    ],
)
def test_a_class_that_cannot_be_used_prevents_the_start(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        loaded(name)


def test_a_policy_for_topics_is_none_for_configs() -> None:
    with pytest.raises(ConfigError, match=r"extends barnabas\.AlterConfigPolicy"):
        loaded(f"{__name__}:Topics", ALTER_CONFIG_POLICY)


def test_a_policy_that_cannot_be_closed_does_not_prevent_the_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    close_policy(Topics())
    assert "already closed" in caplog.text


def test_keys_of_policies_are_no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        read_configuration({CREATE_TOPIC_POLICY: "a:B", "my.key": "7"})
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        read_configuration({"my.key": "7"})
    assert "my.key has no effect" in caplog.text


def test_a_quota_callback_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"would not enforce.*kafka-configs\.sh"):
        read_configuration({"client.quota.callback.class": "io.strimzi.StaticQuotaCallback"})
    read_configuration({"client.quota.callback.class": ""})


def test_the_example_of_the_documentation_works(monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = re.findall(r"```python\n([^`]*class TopicPolicy[^`]*)```", PAGE.read_text())
    module = ModuleType("our_policies")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(code, vars(module))
    [keys] = re.findall(r"```properties\n([^`]*policy.class.name[^`]*)```", PAGE.read_text())
    properties = parse_properties(keys)
    name = properties.pop(CREATE_TOPIC_POLICY)
    topics = loaded(name, **properties)
    configs = loaded(properties.pop(ALTER_CONFIG_POLICY), ALTER_CONFIG_POLICY)
    assert isinstance(topics, CreateTopicPolicy)
    assert isinstance(configs, AlterConfigPolicy)
    topics.validate(CreateTopicMetadata("orders", 10, 3, None, {}))
    topics.validate(CreateTopicMetadata("__consumer_offsets", 50, 3, None, {}))
    with pytest.raises(PolicyViolationError, match="at most 10 partitions"):
        topics.validate(CreateTopicMetadata("orders", 11, 3, None, {}))
    with pytest.raises(PolicyViolationError, match="at most 10 partitions"):
        topics.validate(CreateTopicMetadata("o", None, None, {each: [1] for each in range(11)}, {}))
    resource = ConfigResource(ResourceType.TOPIC, "orders")
    configs.validate(AlterConfigMetadata(resource, {"retention.ms": None}))
    with pytest.raises(PolicyViolationError, match="a limit"):
        configs.validate(AlterConfigMetadata(resource, {"retention.ms": "-1"}))
