"""Changes of links by admin clients such as kafka-configs.sh: useless ones are refused."""

from __future__ import annotations

import pytest

from barnabas.controller.result import Refusal
from barnabas.protocol.errors import ErrorCode
from barnabas.replication.links.link_table import MirrorState, MirrorTopic
from barnabas.server.configs.link_settings import check_link_settings, check_links_kept

LINK = "barnabas.link.prod"
ACCEPTED = {
    "topics": "orders.*",
    "groups": "",
    "state": "paused",
    "group.sync.ms": "300",
    "bytes.per.second": "",
    "on.truncation": "follow",
    "acls": "true",
    "bootstrap.servers": "host1:9092",
    "sasl.password": "${file:/etc/barnabas/prod:password}",
    "config.providers": "file",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "topic.orders.eu": f"active {bytes(16).hex()}",
    "report.1": "{}",
    "source.cluster.id": "QdpNxGgtTRWZIrBfgrTZkg",
}
REFUSED = {
    "topics": "(",
    "groups": "a{9999}",
    "state": "pausd",
    "group.sync.ms": "soon",
    "bytes.per.second": "-1",
    "on.truncation": "folow",
    "acls": "yes",
    "group.sync": "300",
    "security.protokol": "SSL",
    "topic.orders": "activ",
    "": "active",
}


@pytest.mark.parametrize("key", ACCEPTED)
def test_a_setting_of_a_link_is_accepted_for_all_brokers(key: str) -> None:
    check_link_settings("", {f"{LINK}.{key}": ACCEPTED[key]})


@pytest.mark.parametrize("key", REFUSED)
def test_a_change_without_a_use_is_refused_with_the_command_that_has_the_settings(key: str) -> None:
    name = f"{LINK}.{key}"
    with pytest.raises(Refusal, match="barnabas links create --help") as refusal:
        check_link_settings("", {name: REFUSED[key]})

    assert refusal.value.error_code is ErrorCode.INVALID_CONFIG
    assert refusal.value.message.startswith(f"{name}: ")


def test_a_setting_of_a_link_is_refused_for_a_single_broker() -> None:
    with pytest.raises(Refusal, match=r"kafka-configs\.sh --entity-default"):
        check_link_settings("1", {f"{LINK}.state": "paused"})


def test_deletions_and_other_configs_are_not_checked() -> None:
    check_link_settings("1", {f"{LINK}.nonsense": None, "log.cleaner.threads": "x"})


@pytest.mark.parametrize("state", MirrorState)
def test_the_state_of_a_mirror_is_accepted(state: MirrorState) -> None:
    mirror = MirrorTopic("prod", "orders", state, bytes(range(16)), "a reason", ("cluster",))
    check_link_settings("", {mirror.config_name: mirror.config_value})


def test_a_request_that_would_delete_links_is_refused() -> None:
    current = ["log.cleaner.threads", f"{LINK}.topics", f"{LINK}.topic.orders"]
    with pytest.raises(Refusal, match=r"links \(prod\)[^`]*`barnabas configs set` .*links delete"):
        check_links_kept(current, ["log.cleaner.threads", f"{LINK}.topics"])

    check_links_kept(current, current)
    check_links_kept(["log.cleaner.threads"], [])
