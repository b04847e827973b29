"""Rules for topics with a remote tier, in Kafka's order."""

from __future__ import annotations

import pytest

from barnabas.controller.config_rules import TopicConfigs
from barnabas.controller.result import Refusal
from barnabas.protocol.errors import ErrorCode
from barnabas.storage.remote_keys import SYSTEM_ENABLE
from unit.controller.parts import config_of

TIERED = {"remote.storage.enable": "true"}


def topic_configs(**properties: str) -> TopicConfigs:
    switch = SYSTEM_ENABLE.replace(".", "__")
    return TopicConfigs(config_of(**{switch: "true", **properties}))


def refusal(
    own: dict[str, str], before: dict[str, str] | None = None, **properties: str
) -> str | None:
    """Return the message of the refusal; None if the configs are accepted."""
    try:
        topic_configs(**properties).check({**TIERED, **own}, before or {})
    except Refusal as error:
        found = error
    else:
        return None
    assert found.error_code == ErrorCode.INVALID_CONFIG
    return found.message


def test_a_tiered_topic_needs_the_tier_of_the_cluster() -> None:
    disabled = TopicConfigs(config_of())
    with pytest.raises(Refusal, match=r"remote\.log\.storage\.system\.enable=false"):
        disabled.check(TIERED)
    # The other keys are accepted, as in Kafka: they have no effect without the tier.
    disabled.check({"remote.storage.enable": "false", "local.retention.ms": "1"})
    assert refusal({}) is None


@pytest.mark.parametrize(
    ("policy", "is_accepted"),
    [("delete", True), ("", True), ("compact", False), ("delete,compact", False)],
)
def test_a_tiered_topic_is_not_compacted(policy: str, is_accepted: bool) -> None:
    message = refusal({"cleanup.policy": policy})
    assert (message is None) is is_accepted
    assert message is None or "cleanup.policy" in message


def test_the_inherited_policy_counts() -> None:
    assert "cleanup.policy" in (refusal({}, log__cleanup__policy="compact") or "")
    assert refusal({"cleanup.policy": "delete"}, log__cleanup__policy="compact") is None


@pytest.mark.parametrize("unit", ["bytes", "ms"])
@pytest.mark.parametrize(
    ("total", "local", "is_accepted"),
    [
        ("1000", "-2", True),
        ("1000", "0", True),
        ("1000", "1000", True),
        ("1000", "1001", False),
        ("1000", "-1", False),
        ("-1", "-1", True),
        ("-1", "1001", True),
        ("-1", "-2", True),
    ],
)
def test_local_retention_is_within_total_retention(
    unit: str, total: str, local: str, is_accepted: bool
) -> None:
    message = refusal({f"retention.{unit}": total, f"local.retention.{unit}": local})
    assert (message is None) is is_accepted
    assert message is None or message.startswith(f"local.retention.{unit}: '{local}'")


def test_inherited_retention_counts() -> None:
    week_ms = 604_800_000
    assert refusal({"local.retention.ms": str(week_ms)}) is None
    assert f"retention.ms is {week_ms}" in (refusal({"local.retention.ms": str(week_ms + 1)}) or "")
    assert refusal({"retention.ms": "5"}, log__local__retention__ms="6") is not None


@pytest.mark.parametrize("unit", ["bytes", "ms"])
@pytest.mark.parametrize(
    ("local", "lag", "is_accepted"),
    [
        ("100", "100", True),
        ("100", "101", False),
        ("100", "-1", True),
        # The total retention is the effective local one.
        ("-2", "1000", True),
        ("-2", "1001", False),
        # Kafka compares only with a positive local retention.
        ("0", "101", True),
    ],
)
def test_a_copy_is_not_later_than_local_retention(
    unit: str, local: str, lag: str, is_accepted: bool
) -> None:
    message = refusal(
        {
            f"retention.{unit}": "1000",
            f"local.retention.{unit}": local,
            f"remote.copy.lag.{unit}": lag,
        }
    )
    assert (message is None) is is_accepted
    assert message is None or message.startswith(f"remote.copy.lag.{unit}: '{lag}'")


@pytest.mark.parametrize("unit", ["bytes", "ms"])
@pytest.mark.parametrize(("local", "is_accepted"), [("-2", True), ("1000", True), ("999", False)])
def test_without_copies_local_retention_is_total_retention(
    unit: str, local: str, is_accepted: bool
) -> None:
    own = {f"retention.{unit}": "1000", f"local.retention.{unit}": local}
    assert refusal(own) is None
    message = refusal({**own, "remote.log.copy.disable": "true"})
    assert (message is None) is is_accepted


def test_the_first_of_several_problems_in_kafkas_order_is_reported() -> None:
    own = {
        "cleanup.policy": "compact",
        "retention.bytes": "10",
        "local.retention.bytes": "11",
        "retention.ms": "10",
        "local.retention.ms": "11",
        "remote.copy.lag.bytes": "12",
        "remote.log.copy.disable": "true",
    }
    disabled = TopicConfigs(config_of())
    with pytest.raises(Refusal, match=r"system\.enable=false"):
        disabled.check({**TIERED, **own})
    seen = []
    # Each problem is removed once it is reported.
    for correct in (
        {"cleanup.policy": "delete"},
        {"local.retention.bytes": "9"},
        {"local.retention.ms": "9"},
        {"remote.copy.lag.bytes": "0"},
        {"local.retention.bytes": "10"},
        {"local.retention.ms": "10"},
    ):
        seen.append((refusal(own) or "").partition(":")[0])
        own |= correct
    assert refusal(own) is None
    assert seen == [
        "cleanup.policy",
        "local.retention.bytes",
        "local.retention.ms",
        "remote.copy.lag.bytes",
        "local.retention.bytes",
        "local.retention.ms",
    ]


ON = "remote.storage.enable"
DELETES = "remote.log.delete.on.disable"


@pytest.mark.parametrize("after", [{}, {ON: "false"}, {ON: "false", DELETES: "false"}])
def test_a_topic_loses_its_tier_only_with_the_data_in_it(after: dict[str, str]) -> None:
    with pytest.raises(Refusal, match=f"{ON}=false,{DELETES}=true") as raised:
        # What the change removes does not count, as in Kafka.
        topic_configs().check(after, {ON: "TRUE", DELETES: "true"})
    assert raised.value.error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("after", [{DELETES: "true"}, {ON: "false", DELETES: "TRUE"}])
def test_a_topic_that_deletes_its_remote_data_can_lose_its_tier(after: dict[str, str]) -> None:
    topic_configs().check(after, TIERED)
    # Also if it changes to a topic that could not have a tier.
    topic_configs().check({**after, "cleanup.policy": "compact"}, TIERED)


def test_an_existing_topic_can_get_a_remote_tier() -> None:
    assert refusal({}, {"remote.storage.enable": "false"}) is None
    assert refusal({}, {"retention.ms": "5"}) is None


def test_only_new_topics_begin_to_be_restored() -> None:
    key = "barnabas.remote.restore"
    copying, adopting = {**TIERED, key: "copying"}, {**TIERED, key: "adopting"}
    assert refusal({key: "copying"}) is None
    assert refusal({key: "adopting"}, copying) is None
    assert refusal({key: "finishing"}, adopting) is None
    assert refusal({}, adopting) is None
    assert "not new" in (refusal({key: "adopting"}) or "")
    assert "not new" in (refusal({key: "copying"}, TIERED) or "")
    assert "none" in (refusal({key: "true"}) or "")
    with pytest.raises(Refusal, match=r"remote\.storage\.enable is not true"):
        topic_configs().check({key: "copying"})
