"""The keys that name the server-side assignors."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.group_config import DEFINITION
from barnabas.coordinator.group.kind_configs import ASSIGNOR_KEYS, consumer_assignors
from barnabas.protocol.errors import ErrorCode
from barnabas.settings.definition import ConfigError
from unit.coordinator.consumers_world import ConsumersWorld

PACKAGE = "org.apache.kafka.coordinator.group.assignor"
KEYS = {key.name: key for key in ASSIGNOR_KEYS}


def names(text: str) -> list[str]:
    parsed = DEFINITION.parse({"group.consumer.assignors": text})
    return [*consumer_assignors(parsed)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("uniform,range", ["uniform", "range"]),
        ("range, uniform", ["range", "uniform"]),
        ("range", ["range"]),
        (f"{PACKAGE}.RangeAssignor,uniform", ["range", "uniform"]),
    ],
)
def test_assignors_have_names_and_classes(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("group.consumer.assignors", ""),
        ("group.consumer.assignors", "sticky"),
        ("group.consumer.assignors", "uniform,com.example.Mine"),
        ("group.consumer.assignors", f"range,{PACKAGE}.RangeAssignor"),
        ("group.consumer.assignors", "simple"),
        ("group.share.assignors", "uniform"),
        ("group.share.assignors", "simple,simple"),
    ],
)
def test_other_assignors_are_refused_with_the_allowed_ones(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match="remove other assignors from the list") as raised:
        KEYS[key].parse(text)
    assert ("simple" if "share" in key else "uniform, range") in str(raised.value)


def test_the_first_assignor_is_the_default() -> None:
    world = ConsumersWorld(group_consumer_assignors=["range", "uniform"])
    world.create_topic("a", 4)
    world.subscribe("m", "a")
    assert world.describe_consumers().assignor_name == "range"


def test_members_choose_configured_assignors_only() -> None:
    world = ConsumersWorld(group_consumer_assignors=["range"])
    answer = world.subscribe("m", "a", server_assignor="uniform")
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert answer.error_message == "The group coordinator has no assignor uniform. It has: range."


def test_a_group_whose_members_chose_an_assignor_that_is_gone_gets_the_default() -> None:
    world = ConsumersWorld()
    world.create_topic("a", 4)
    world.subscribe("m", "a", server_assignor="uniform")
    world.group_config["group_consumer_assignors"] = ["range"]
    world.restart()
    assert world.subscribe("n", "a").error_code == ErrorCode.NONE
    assert world.state() == "Reconciling"
