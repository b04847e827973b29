"""Configs of tiered topics and of their brokers, on a complete broker in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.metadata.configs_image import BROKER, TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.replication.config import FETCH_LAST_TIERED
from barnabas.server.configs.dynamic_config import GRADUAL
from barnabas.storage.config import INTERNAL_SEGMENT_BYTES
from barnabas.storage.remote_keys import (
    COPIER_THREADS,
    COPY_RATE,
    EXPIRATION_THREADS,
    FETCH_MAX_WAIT,
    FETCH_RATE,
    INDEX_CACHE_BYTES,
    LIST_OFFSETS_TIMEOUT,
    READ_CACHE_BYTES,
    READER_THREADS,
    REMOTE_DYNAMIC_KEYS,
    REMOTE_KEYS,
)
from barnabas.storage.topic_partition import TopicPartition
from unit.server.dispatch.sent_requests import alter, describe
from unit.server.simulated_broker import SimulatedBroker

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.server.process.tiered_storage import TieredStorage

PARTITION = TopicPartition("t", 0)
ENABLE = "remote.storage.enable"


def tiered(**settings: str) -> SimulatedBroker:
    return SimulatedBroker(
        remote_log_storage_system_enable="true", barnabas_remote_storage="file:///tier", **settings
    )


@pytest.fixture(scope="module")
def broker() -> SimulatedBroker:
    made = tiered(
        remote_log_manager_expiration_thread_pool_size="2",
        barnabas_remote_copy_buffer_max_bytes=str(1 << 30),
    )
    made.make_topic("t")
    return made


def log_of(broker: SimulatedBroker) -> Any:
    return broker.node.broker.logs.logs[PARTITION]


def names(broker: SimulatedBroker, kind: int, name: str) -> set[str]:
    """Return the names of all described keys of a resource."""
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    (found,) = broker.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    return {each.name for each in found.configs}


def test_a_broker_without_a_tier_refuses_tiered_topics() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    assert alter(broker, TOPIC, "t", ENABLE, "true") == ErrorCode.INVALID_CONFIG
    assert alter(broker, TOPIC, "t", ENABLE, "false") == ErrorCode.NONE
    assert not log_of(broker).config.is_remote


def test_a_topic_gets_a_tier_when_it_is_created_or_later(broker: SimulatedBroker) -> None:
    broker.make_topic("new", remote_storage_enable="true")
    assert broker.node.broker.logs.logs[TopicPartition("new", 0)].config.is_remote
    broker.make_topic("old")
    log = broker.node.broker.logs.logs[TopicPartition("old", 0)]
    assert not log.config.is_remote
    assert alter(broker, TOPIC, "old", ENABLE, "true") == ErrorCode.NONE
    assert log.config.is_remote
    assert describe(broker, TOPIC, "old", ENABLE)[:2] == ("true", 1)
    assert alter(broker, TOPIC, "old", ENABLE, None) == ErrorCode.INVALID_CONFIG
    assert alter(broker, TOPIC, "old", "cleanup.policy", "compact") == ErrorCode.INVALID_CONFIG


def test_internal_topics_stay_local(broker: SimulatedBroker) -> None:
    configs = broker.node.broker.follower._configs
    own = {ENABLE: "true"}
    assert configs.of("t", own).is_remote
    for topic in ("__consumer_offsets", "__transaction_state", "__remote_log_metadata"):
        assert not configs.of(topic, own).is_remote


def test_internal_keys_are_described_only_if_they_are_set() -> None:
    broker = tiered(remote_log_manager_task_retry_backoff_ms="100")
    broker.make_topic("t")
    assert INTERNAL_SEGMENT_BYTES not in names(broker, TOPIC, "t")
    assert alter(broker, TOPIC, "t", INTERNAL_SEGMENT_BYTES, "5000") == ErrorCode.NONE
    assert INTERNAL_SEGMENT_BYTES in names(broker, TOPIC, "t")
    assert log_of(broker).config.segment_bytes == 5000
    hidden = {key.name for key in REMOTE_KEYS} - names(broker, BROKER, "1")
    assert hidden == {
        "remote.log.index.file.cache.ttl.ms",
        "remote.log.manager.task.retry.backoff.max.ms",
        "remote.log.manager.task.retry.jitter",
    }


@pytest.mark.parametrize("key", [COPIER_THREADS, READER_THREADS])
def test_a_pool_at_most_doubles_or_halves_at_once(broker: SimulatedBroker, key: str) -> None:
    assert key in GRADUAL
    assert EXPIRATION_THREADS in GRADUAL
    for value, error in (
        ("21", ErrorCode.INVALID_REQUEST),
        ("4", ErrorCode.INVALID_REQUEST),
        ("20", ErrorCode.NONE),
        (None, ErrorCode.NONE),
        ("5", ErrorCode.NONE),
        ("0", ErrorCode.INVALID_REQUEST),
        (None, ErrorCode.NONE),
    ):
        assert alter(broker, BROKER, "", key, value) == error, value


# Key -> (value to set, observed attribute of the broker's tier, its result).
EFFECTS: dict[str, tuple[str, Callable[[TieredStorage], Any], Any]] = {
    COPIER_THREADS: ("5", lambda tier: tier.copying.threads, 5),
    EXPIRATION_THREADS: ("3", lambda tier: tier._deletes.threads, 3),
    READER_THREADS: ("5", lambda tier: tier.reading.threads, 5),
    COPY_RATE: ("5000", lambda tier: tier.copy_quota.bytes_per_second, 5000),
    FETCH_RATE: ("5000", lambda tier: tier.fetch_quota.bytes_per_second, 5000),
    INDEX_CACHE_BYTES: ("5000", lambda tier: tier.reads.limits.index_file_bytes_max, 5000),
    READ_CACHE_BYTES: ("8388608", lambda tier: tier.reads.limits.read_cache_bytes_max, 8 << 20),
    FETCH_MAX_WAIT: ("5", lambda tier: tier.reads.limits.fetch_max_wait_ms, 5),
    LIST_OFFSETS_TIMEOUT: ("5", lambda tier: tier.reads.limits.list_offsets_timeout_ms, 5),
    FETCH_LAST_TIERED: (
        "true",
        lambda tier: tier.replication.access.starts_at_last_tiered(),
        True,
    ),
}


@pytest.mark.parametrize("key", EFFECTS)
def test_a_key_of_the_tier_takes_effect_while_the_broker_runs(
    broker: SimulatedBroker, key: str
) -> None:
    value, seen, expected = EFFECTS[key]
    tier = broker.node.broker.tiering
    before = seen(tier)
    assert before != expected
    assert alter(broker, BROKER, "", key, value) == ErrorCode.NONE
    assert seen(tier) == expected
    assert alter(broker, BROKER, "", key, None) == ErrorCode.NONE
    assert seen(tier) == before


def test_every_dynamic_key_of_the_tier_has_a_test() -> None:
    assert set(EFFECTS) == {*REMOTE_DYNAMIC_KEYS, FETCH_LAST_TIERED}


def test_a_broker_does_not_start_without_the_tier_of_its_topics() -> None:
    broker = tiered()
    broker.make_topic("t", remote_storage_enable="true")
    broker.stop()
    broker.settings["remote.log.storage.system.enable"] = "false"
    with pytest.raises(AssertionError, match=r"remote\.storage\.enable=true: t\."):
        broker.restart()
