"""The configs of links, and what becomes of values that cannot be used."""

from __future__ import annotations

import pytest

from barnabas.metadata.acls import Acl
from barnabas.replication.links.link_table import (
    NO_TOPIC_ID,
    REASON_CHARACTERS_MAX,
    GroupReport,
    MirrorState,
    MirrorTopic,
    PromotionRequest,
    TruncationPolicy,
    acl_name,
    acl_value,
    client_key_of,
    promotion_value,
    read_links,
    report_name,
    report_value,
)

SOURCE_ID = bytes(range(16))
CONFIGS = {
    "min.insync.replicas": "1",
    "barnabas.link.prod.bootstrap.servers": "host1:9092",
    "barnabas.link.prod.ssl.keystore.password": "secret",
    "barnabas.link.prod.topics": "orders.*",
    "barnabas.link.prod.groups": "",
    "barnabas.link.prod.topic.orders.eu": f"active {SOURCE_ID.hex()}",
}


def test_links_and_mirrors_are_read_from_configs() -> None:
    table = read_links(CONFIGS)

    link = table.links["prod"]
    assert link.client == {
        "bootstrap.servers": "host1:9092",
        "ssl.keystore.password": "secret",
    }
    assert link.topics is not None
    assert link.topics.matches("orders.eu")
    assert link.groups is None
    assert not link.problem
    assert table.mirrors == {
        "orders.eu": MirrorTopic("prod", "orders.eu", MirrorState.ACTIVE, SOURCE_ID)
    }


@pytest.mark.parametrize("state", MirrorState)
def test_a_mirror_is_read_as_it_was_written(state: MirrorState) -> None:
    mirror = MirrorTopic("prod", "orders.eu", state, SOURCE_ID, "the topic was recreated")

    assert read_links({mirror.config_name: mirror.config_value}).mirrors["orders.eu"] == mirror


def test_a_long_reason_is_truncated() -> None:
    mirror = MirrorTopic("prod", "t", MirrorState.STOPPED, SOURCE_ID, "long\n" * 1_000)

    (read,) = read_links({mirror.config_name: mirror.config_value}).mirrors.values()
    assert len(read.reason) <= REASON_CHARACTERS_MAX


@pytest.mark.parametrize("value", ["", "unknown 00", "active zz", "7"])
def test_a_mirror_with_an_unreadable_state_stays_read_only(value: str) -> None:
    (mirror,) = read_links({"barnabas.link.prod.topic.orders": value}).mirrors.values()

    assert mirror.state is MirrorState.STOPPED
    assert mirror.is_read_only
    assert mirror.reason


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topics", "("),
        ("groups", "a{9999}"),
        ("bytes.per.second", "x"),
        ("group.sync.ms", ""),
        ("on.truncation", "merge"),
    ],
)
def test_a_link_with_an_unusable_setting_has_a_problem(key: str, value: str) -> None:
    table = read_links({**CONFIGS, f"barnabas.link.prod.{key}": value})

    assert table.links["prod"].problem
    assert "orders.eu" in table.mirrors


@pytest.mark.parametrize(
    "name", ["barnabas.link.", "barnabas.link.prod", "barnabas.link.a b.topics"]
)
def test_configs_with_impossible_names_are_skipped(name: str) -> None:
    table = read_links({name: "value"})

    assert not table.links
    assert not table.mirrors


def test_the_first_link_by_name_has_a_topic_of_two_links() -> None:
    value = f"active {SOURCE_ID.hex()}"
    table = read_links(
        {"barnabas.link.b.topic.orders": value, "barnabas.link.a.topic.orders": value}
    )

    assert table.mirrors["orders"].link == "a"


@pytest.mark.parametrize(
    ("mirrored", "found", "may_copy"),
    [
        (SOURCE_ID, SOURCE_ID, True),
        (SOURCE_ID, bytes(range(1, 17)), False),
        (NO_TOPIC_ID, SOURCE_ID, True),
        (SOURCE_ID, NO_TOPIC_ID, True),
    ],
)
def test_a_source_with_another_id_is_not_copied(
    mirrored: bytes, found: bytes, may_copy: bool
) -> None:
    assert MirrorTopic("prod", "t", MirrorState.ACTIVE, mirrored).may_copy(found) is may_copy


def test_only_keys_of_the_client_may_be_secrets() -> None:
    assert client_key_of("barnabas.link.prod.sasl.jaas.config") == "sasl.jaas.config"
    assert client_key_of("barnabas.link.prod.topics") is None
    assert client_key_of("barnabas.link.prod.topic.orders") is None
    assert client_key_of("log.retention.ms") is None


@pytest.mark.parametrize("links", [("a", "b"), ("b", "a")])
def test_a_conflict_of_one_link_does_not_hide_the_mirror_of_another(
    links: tuple[str, str],
) -> None:
    mirror = MirrorTopic(links[0], "orders", MirrorState.PAUSED, SOURCE_ID)
    conflict = MirrorTopic(links[1], "orders", MirrorState.CONFLICT, SOURCE_ID)

    table = read_links({each.config_name: each.config_value for each in (mirror, conflict)})

    assert table.mirrors == {"orders": mirror}


@pytest.mark.parametrize(
    ("state", "is_paused", "is_reversed"),
    [("active", False, False), ("paused", True, False), ("reversed", True, True)],
)
def test_a_reversed_link_is_paused(state: str, is_paused: bool, is_reversed: bool) -> None:
    link = read_links({"barnabas.link.prod.state": state}).links["prod"]

    assert (link.is_paused, link.is_reversed) == (is_paused, is_reversed)


def test_a_link_follows_truncations_and_copies_acls_by_choice() -> None:
    prefix = "barnabas.link.prod."
    plain = read_links({f"{prefix}topics": "orders"}).links["prod"]
    assert (plain.on_truncation, plain.copies_acls) == (TruncationPolicy.STOP, False)
    chosen = read_links({f"{prefix}on.truncation": "follow", f"{prefix}acls": "true"}).links["prod"]

    assert (chosen.on_truncation, chosen.copies_acls) == (TruncationPolicy.FOLLOW, True)


def test_acls_of_a_link_are_read_as_they_were_written() -> None:
    acl = Acl(2, "orders", 3, "User:app", "*", 3, 3)
    name = acl_name("prod", acl)
    configs = {name: acl_value(acl), "barnabas.link.prod.acl.damaged": "{"}
    link = read_links(configs).links["prod"]

    assert link.acls == {name: acl}
    assert not link.client
    assert client_key_of(name) is None


def test_clients_write_to_topics_that_are_promoted_or_in_conflict() -> None:
    writable = {
        state for state in MirrorState if not MirrorTopic("prod", "orders", state).is_read_only
    }

    assert writable == {MirrorState.PROMOTED, MirrorState.CONFLICT}


def test_promotions_and_reports_are_read_as_they_were_written() -> None:
    request = PromotionRequest("1a", frozenset({"orders.eu", "orders.us"}))
    report = GroupReport("1a", False, [0, 3], 1, ["a group"])
    table = read_links(
        {
            **CONFIGS,
            "barnabas.link.prod.promotion": promotion_value(request),
            report_name("prod", 3): report_value(report),
            report_name("prod", 4): "{",
        }
    )

    assert table.links["prod"].promotion == request
    assert table.links["prod"].reports == {"3": report}
    assert table.links["prod"].client == read_links(CONFIGS).links["prod"].client
    assert client_key_of(report_name("prod", 3)) is None


def test_a_mirror_of_a_mirror_is_read_with_its_origins() -> None:
    origins = ("QdpNxGgtTRWZIrBfgrTZkg", "the-first.cluster")
    mirror = MirrorTopic("prod", "orders", MirrorState.STOPPED, SOURCE_ID, "a: b", origins)
    assert read_links({mirror.config_name: mirror.config_value}).mirrors["orders"] == mirror

    hostile = MirrorTopic("prod", "orders", MirrorState.ACTIVE, SOURCE_ID, "", ("a b", "") * 99)
    assert read_links({hostile.config_name: hostile.config_value}).mirrors["orders"].origins == ()
    many = MirrorTopic("prod", "orders", MirrorState.ACTIVE, SOURCE_ID, "", ("cluster",) * 999)
    assert len(many.config_value) < 300
