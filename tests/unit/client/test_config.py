"""Client configuration: Kafka's keys in both spellings, and errors that name the key."""

from __future__ import annotations

import pytest

from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientConfigError


def parse(**keys: object) -> ClientConfig:
    return ClientConfig.parse({"bootstrap.servers": "a:1", **keys})


def test_keys_are_accepted_with_dots_and_with_underscores() -> None:
    config = ClientConfig.parse({"bootstrap_servers": "a:1", "fetch.min.bytes": "7"})
    assert config.fetch_min_bytes == 7


def test_addresses_are_a_string_or_a_list() -> None:
    expected = (("a", 1), ("::1", 2))
    assert ClientConfig.parse({"bootstrap.servers": "a:1, [::1]:2"}).bootstrap_servers == expected
    given = ["a:1", "[::1]:2"]
    assert ClientConfig.parse({"bootstrap.servers": given}).bootstrap_servers == expected


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("linger.ms", "soon", "linger.ms=soon is not a whole number"),
        ("linger.ms", -1, "linger.ms=-1 is out of range: 0 to"),
        ("acks", "2", "acks=2 is not one of: all, 0, 1"),
        ("check.crcs", "perhaps", "check.crcs=perhaps is neither true nor false"),
        ("batch.sise", 1, "did you mean batch.size?"),
        ("bootstrap.servers", "nowhere", "nowhere is not HOST:PORT"),
    ],
)
def test_a_wrong_key_or_value_is_named(key: str, value: object, words: str) -> None:
    with pytest.raises(ClientConfigError) as raised:
        parse(**{key: value})
    assert words in str(raised.value)


def test_unused_keys_of_java_clients_are_accepted() -> None:
    parse(**{"key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer"})


def test_idempotence_is_disabled_by_default_without_acks_all() -> None:
    assert parse().enable_idempotence
    assert not parse(acks=1).enable_idempotence


def test_explicit_idempotence_without_acks_all_is_an_error() -> None:
    with pytest.raises(ClientConfigError):
        parse(acks=1, enable_idempotence=True)


def test_some_keys_can_be_overridden_later() -> None:
    assert parse(linger_ms=3).override({"batch.size": 9}).batch_size == 9


def test_assignors_are_named_in_one_string_or_listed() -> None:
    assert parse().partition_assignment_strategy == ("range", "cooperative-sticky")
    given = parse(partition_assignment_strategy="sticky, range")
    assert given.partition_assignment_strategy == ("sticky", "range")
    assert parse(partition_assignment_strategy=[dict]).partition_assignment_strategy == (dict,)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"session_timeout_ms": 3000}, "must be less than session.timeout.ms=3000"),
        ({"partition_assignment_strategy": ""}, "name an assignor"),
        ({"group_instance_id": ""}, "group.instance.id is empty"),
        ({"group_remote_assignor": "range"}, "needs group.protocol=consumer"),
        ({"group_protocol": "consumer", "session_timeout_ms": 9000}, "session.timeout.ms has no"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 9}, "heartbeat.interval.ms has"),
    ],
)
def test_contradictory_group_keys_are_refused(keys: dict[str, object], words: str) -> None:
    with pytest.raises(ClientConfigError) as raised:
        parse(**keys)
    assert words in str(raised.value)


def test_members_prefer_range_and_can_change_to_cooperative_sticky() -> None:
    assert parse().partition_assignment_strategy == ("range", "cooperative-sticky")
