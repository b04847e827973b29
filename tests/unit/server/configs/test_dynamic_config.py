"""Broker keys that change at runtime: each reaches the component that uses it (KIP-226)."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.coordinator.group.kind_configs import (
    ASSIGNMENT_INTERVALS,
    DEAD_LETTER_AUTO_CREATE,
    DEAD_LETTER_PREFIX,
)
from barnabas.metadata.configs_image import BROKER
from barnabas.protocol.errors import ErrorCode
from barnabas.replication.config import FETCH_LAST_TIERED
from barnabas.server.configs.configuration import BROKER_KEYS
from barnabas.server.configs.dynamic_config import DynamicBrokerConfig, TopicConfigs, default_keys
from barnabas.server.configs.tls_config import DYNAMIC_TLS_KEYS
from barnabas.settings.key import DynamicMode
from barnabas.storage.remote_keys import REMOTE_DYNAMIC_KEYS
from barnabas.storage.topic_partition import TopicPartition
from unit.metadata.clusters import config, image_of
from unit.server.dispatch.sent_requests import alter, describe
from unit.server.simulated_broker import SimulatedBroker

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITION = TopicPartition("t", 0)


def of_log(attribute: str) -> Callable[[SimulatedBroker], Any]:
    """The configuration that the log of a topic without own values uses."""
    return lambda broker: getattr(broker.node.broker.logs.logs[PARTITION].config, attribute)


def of_cleaner(attribute: str) -> Callable[[SimulatedBroker], Any]:
    return lambda broker: getattr(broker.node.broker.logs.cleaner._config, attribute)


def of_connections(attribute: str) -> Callable[[SimulatedBroker], Any]:
    return lambda broker: getattr(broker.node.shared.connections.bounds, attribute)


def of_replicas(*attributes: str) -> Callable[[SimulatedBroker], Any]:
    return lambda broker: attrgetter(".".join(attributes))(broker.node.broker.replicas)


def of_groups(key: str) -> Callable[[SimulatedBroker], Any]:
    return lambda broker: broker.node.broker.groups.settings.config[key]


def of_controller(name: str) -> Callable[[SimulatedBroker], Any]:
    """The configuration that the controller uses for a topic without own values."""

    def look(broker: SimulatedBroker) -> Any:
        controller = broker.node.controller.controller
        assert controller.image is not None
        return controller._controls.configs._topic_configs.value(controller.image, "t", name)

    return look


# Key -> (value to set, observed function, its result).
EFFECTS: dict[str, tuple[str, Callable[[SimulatedBroker], Any], Any]] = {
    "follower.replication.throttled.rate": (
        "5000",
        of_replicas("throttles", "follower", "bytes_per_second"),
        5000,
    ),
    "leader.replication.throttled.rate": (
        "5000",
        of_replicas("throttles", "leader", "bytes_per_second"),
        5000,
    ),
    "replica.alter.log.dirs.io.max.bytes.per.second": (
        "5000",
        of_replicas("throttles", "moves", "bytes_per_second"),
        5000,
    ),
    "num.replica.fetchers": ("2", of_replicas("followed", "_fetchers_per_leader"), 2),
    "compression.gzip.level": ("5", of_log("compression_gzip_level"), 5),
    "compression.lz4.level": ("5", of_log("compression_lz4_level"), 5),
    "compression.type": ("lz4", of_log("compression_type"), "lz4"),
    "compression.zstd.level": ("5", of_log("compression_zstd_level"), 5),
    "log.cleaner.backoff.ms": ("5", of_cleaner("log_cleaner_backoff_ms"), 5),
    "log.cleaner.dedupe.buffer.size": (
        "2000000",
        of_cleaner("log_cleaner_dedupe_buffer_size"),
        2_000_000,
    ),
    "log.cleaner.delete.retention.ms": ("5", of_log("delete_retention_ms"), 5),
    "log.cleaner.io.buffer.load.factor": (
        "0.5",
        of_cleaner("log_cleaner_io_buffer_load_factor"),
        0.5,
    ),
    "log.cleaner.io.buffer.size": ("70000", of_cleaner("log_cleaner_io_buffer_size"), 70_000),
    "log.cleaner.io.max.bytes.per.second": (
        "5000.0",
        of_cleaner("log_cleaner_io_max_bytes_per_second"),
        5000.0,
    ),
    "log.cleaner.max.compaction.lag.ms": ("5", of_log("max_compaction_lag_ms"), 5),
    "log.cleaner.min.cleanable.ratio": ("0.25", of_log("min_cleanable_dirty_ratio"), 0.25),
    "log.cleaner.min.compaction.lag.ms": ("5", of_log("min_compaction_lag_ms"), 5),
    "log.cleaner.threads": ("2", of_cleaner("log_cleaner_threads"), 2),
    "log.cleanup.policy": ("compact", of_log("cleanup_policy"), ("compact",)),
    "log.flush.interval.messages": ("5", of_log("flush_messages"), 5),
    "log.flush.interval.ms": ("5", of_log("flush_ms"), 5),
    "log.index.interval.bytes": ("5", of_log("index_interval_bytes"), 5),
    "log.index.size.max.bytes": ("800", of_log("segment_index_bytes"), 800),
    "log.local.retention.bytes": ("5", of_log("local_retention_bytes"), 5),
    "log.local.retention.ms": ("5", of_log("local_retention_ms"), 5),
    "log.message.downconversion.enable": (
        "false",
        of_log("message_downconversion_enable"),
        False,
    ),
    "log.message.timestamp.after.max.ms": ("5", of_log("message_timestamp_after_max_ms"), 5),
    "log.message.timestamp.before.max.ms": ("5", of_log("message_timestamp_before_max_ms"), 5),
    "log.message.timestamp.type": (
        "LogAppendTime",
        of_log("message_timestamp_type"),
        "LogAppendTime",
    ),
    "log.remote.copy.lag.bytes": ("5", of_log("remote_copy_lag_bytes"), 5),
    "log.remote.copy.lag.ms": ("5", of_log("remote_copy_lag_ms"), 5),
    "log.retention.bytes": ("5", of_log("retention_bytes"), 5),
    "log.retention.ms": ("5", of_log("retention_ms"), 5),
    "log.roll.jitter.ms": ("5", of_log("segment_jitter_ms"), 5),
    **{key: ("5", of_groups(key), 5) for key in ASSIGNMENT_INTERVALS},
    "log.roll.ms": ("5", of_log("segment_ms"), 5),
    "log.segment.bytes": ("2000000", of_log("segment_bytes"), 2_000_000),
    "log.segment.delete.delay.ms": ("5", of_log("file_delete_delay_ms"), 5),
    DEAD_LETTER_AUTO_CREATE: (
        "true",
        lambda broker: broker.node.shared.dynamic.current.boolean(DEAD_LETTER_AUTO_CREATE),
        True,
    ),
    DEAD_LETTER_PREFIX: (
        "dead.",
        lambda broker: broker.node.shared.dynamic.current.text(DEAD_LETTER_PREFIX),
        "dead.",
    ),
    "max.connection.creation.rate": ("5", of_connections("rate"), 5),
    "max.connections": ("5", of_connections("connections"), 5),
    "max.connections.per.ip": ("5", of_connections("per_address"), 5),
    "max.connections.per.ip.overrides": (
        "10.0.0.1:5",
        of_connections("by_address"),
        {"10.0.0.1": 5},
    ),
    "max.decompressed.message.bytes": ("5", of_log("max_decompressed_message_bytes"), 5),
    "message.max.bytes": ("5000", of_log("max_message_bytes"), 5000),
    "min.insync.replicas": ("2", of_log("min_insync_replicas"), 2),
    "barnabas.retention.hold.ms": (
        "5",
        lambda broker: broker.node.broker.logs.trusted_clock.hold_ms,
        5,
    ),
    "transaction.partition.verification.enable": (
        "false",
        lambda broker: broker.node.broker.logs.logs[PARTITION].producer_state.requires_verification,
        False,
    ),
    "producer.id.expiration.ms": (
        "5",
        lambda broker: broker.node.broker.logs.logs[PARTITION].producer_state.expiration_ms,
        5,
    ),
    "unclean.leader.election.enable": (
        "true",
        of_controller("unclean.leader.election.enable"),
        "true",
    ),
}


@pytest.fixture(scope="module")
def broker() -> SimulatedBroker:
    made = SimulatedBroker()
    made.make_topic("t")
    return made


@pytest.mark.parametrize("name", EFFECTS)
def test_a_key_takes_effect_while_the_broker_runs(broker: SimulatedBroker, name: str) -> None:
    value, seen, expected = EFFECTS[name]
    before = seen(broker)
    assert before != expected
    assert alter(broker, BROKER, "", name, value) == ErrorCode.NONE
    assert seen(broker) == expected
    shown, source, _ = describe(broker, BROKER, "1", name)
    assert (shown, source) == (value, 3)
    if name != "min.insync.replicas":
        assert alter(broker, BROKER, "", name, None) == ErrorCode.NONE
        assert seen(broker) == before


def test_every_dynamic_key_has_a_test() -> None:
    dynamic = {key.name for key in BROKER_KEYS if key.mode is not DynamicMode.READ_ONLY}
    # Key stores have their own tests: tests/unit/server/listeners/test_key_store_changes.py.
    # Keys that only brokers with a remote tier use: test_tiered_topics.py.
    of_tier = {*REMOTE_DYNAMIC_KEYS, FETCH_LAST_TIERED}
    assert dynamic == {*EFFECTS, *DYNAMIC_TLS_KEYS, *of_tier}
    broker = SimulatedBroker()
    # The configuration of dead-letter topics is read for each write.
    read_when_used = {DEAD_LETTER_AUTO_CREATE, DEAD_LETTER_PREFIX}
    assert dynamic - of_tier == broker.node.shared.dynamic.subscribed | read_when_used


def test_a_broker_config_overrides_the_cluster_default_which_overrides_the_file(
    broker: SimulatedBroker,
) -> None:
    name, seen = "log.segment.bytes", of_log("segment_bytes")
    assert alter(broker, BROKER, "1", name, "3000000") == ErrorCode.NONE
    assert alter(broker, BROKER, "", name, "2000000") == ErrorCode.NONE
    assert seen(broker) == 3_000_000
    assert alter(broker, BROKER, "1", name, None) == ErrorCode.NONE
    assert seen(broker) == 2_000_000
    assert alter(broker, BROKER, "", name, None) == ErrorCode.NONE
    assert seen(broker) == 1 << 30


def test_a_time_in_a_finer_unit_takes_precedence(broker: SimulatedBroker) -> None:
    started = SimulatedBroker(log_retention_hours="1", log_roll_hours="2")
    started.make_topic("t")
    assert of_log("retention_ms")(started) == 3_600_000
    assert of_log("segment_ms")(started) == 7_200_000
    assert alter(started, BROKER, "", "log.retention.ms", "5000") == ErrorCode.NONE
    assert of_log("retention_ms")(started) == 5000
    assert alter(started, BROKER, "", "log.retention.ms", None) == ErrorCode.NONE
    assert of_log("retention_ms")(started) == 3_600_000


def test_a_listener_key_takes_effect(broker: SimulatedBroker) -> None:
    name = "listener.name.plaintext.max.connections"
    assert alter(broker, BROKER, "1", name, "7") == ErrorCode.NONE
    assert broker.node.shared.connections.bounds.of_listener("PLAINTEXT").connections == 7
    assert describe(broker, BROKER, "1", name)[:2] == ("7", 2)
    assert alter(broker, BROKER, "1", name, "x") == ErrorCode.INVALID_REQUEST
    assert alter(broker, BROKER, "1", name, None) == ErrorCode.NONE
    assert broker.node.shared.connections.bounds.of_listener("PLAINTEXT").connections > 7


def test_a_size_at_most_doubles_or_halves_at_once(broker: SimulatedBroker) -> None:
    key = "num.replica.fetchers"
    for resource, value, error in (
        ("", "3", ErrorCode.INVALID_REQUEST),
        ("", "2", ErrorCode.NONE),
        ("", "4", ErrorCode.NONE),
        ("", None, ErrorCode.INVALID_REQUEST),
        # One broker's own holds over that of all, whatever becomes of it.
        ("1", "9", ErrorCode.INVALID_REQUEST),
        ("1", "3", ErrorCode.NONE),
        ("", "100", ErrorCode.NONE),
        ("1", None, ErrorCode.INVALID_REQUEST),
        ("", "2", ErrorCode.NONE),
        ("1", None, ErrorCode.NONE),
        ("", None, ErrorCode.NONE),
    ):
        assert alter(broker, BROKER, resource, key, value) == error, (resource, value)


def test_a_limit_that_refuses_every_address_is_refused(broker: SimulatedBroker) -> None:
    key, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    assert alter(broker, BROKER, "1", key, "0") == ErrorCode.INVALID_REQUEST
    assert alter(broker, BROKER, "1", overrides, "127.0.0.1:100") == ErrorCode.NONE
    assert alter(broker, BROKER, "1", key, "0") == ErrorCode.NONE
    assert alter(broker, BROKER, "1", key, None) == ErrorCode.NONE
    assert alter(broker, BROKER, "1", overrides, None) == ErrorCode.NONE


def test_a_changed_key_keeps_its_value_after_a_restart() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    assert alter(broker, BROKER, "", "message.max.bytes", "5000") == ErrorCode.NONE
    assert alter(broker, BROKER, "", "max.connections", "50") == ErrorCode.NONE
    broker.stop()
    broker.restart()
    assert of_log("max_message_bytes")(broker) == 5000
    assert of_connections("connections")(broker) == 50


def test_an_invalid_value_keeps_the_current_value() -> None:
    dynamic = DynamicBrokerConfig(1, BROKER_KEYS.parse({}), {})
    told: list[int] = []
    dynamic.subscribe(
        ["message.max.bytes"], lambda now: told.append(now.integer("message.max.bytes"))
    )
    bad = image_of(config(BROKER, "", "message.max.bytes", "x"), config(BROKER, "", "node.id", "9"))
    dynamic.apply_image(bad)
    assert (told, dynamic.current.integer("node.id")) == ([], 1)
    dynamic.apply_image(image_of(config(BROKER, "1", "message.max.bytes", "7"), base=bad))
    assert told == [7]


def test_topics_inherit_every_key_with_a_broker_synonym() -> None:
    assert set(default_keys(BROKER_KEYS)) <= set(EFFECTS)


def topic_configs(**settings: str) -> TopicConfigs:
    return TopicConfigs(BROKER_KEYS.parse({"remote.log.storage.system.enable": "true", **settings}))


def test_logs_of_equal_topic_configs_share_one_object() -> None:
    configs = topic_configs()
    first = configs.of("a", {"segment.bytes": "2000000", "remote.storage.enable": "true"})
    assert configs.of("b", {"remote.storage.enable": "true", "segment.bytes": "2000000"}) is first
    assert configs.of("b", {"segment.bytes": "3000000"}).segment_bytes == 3_000_000
    internal = configs.of(
        "__consumer_offsets", {"segment.bytes": "2000000", "remote.storage.enable": "true"}
    )
    assert first.is_remote
    assert not internal.is_remote


def test_a_change_of_the_broker_reaches_topics_with_values_of_their_own() -> None:
    configs = topic_configs()
    own = {"segment.bytes": "2000000"}
    before = configs.of("a", own)
    changed = {"log.retention.bytes": "123", "remote.log.storage.system.enable": "true"}
    configs.apply_broker_config(BROKER_KEYS.parse(changed))
    assert before.retention_bytes == -1
    assert configs.of("a", own).retention_bytes == 123


def test_a_thousand_topic_configs_are_kept() -> None:
    configs = topic_configs()
    for number in range(2_500):
        assert configs.of("a", {"retention.ms": str(number)}).retention_ms == number
    assert len(configs._built) <= 1_000
