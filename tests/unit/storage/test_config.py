"""Topic configs and the broker keys behind them."""

from __future__ import annotations

import pytest

from barnabas.settings.definition import ConfigError
from barnabas.storage.config import (
    BROKER_CONFIGS,
    INTERNAL_SEGMENT_BYTES,
    TOPIC_CONFIGS,
    LogConfig,
    StorageConfig,
    log_config,
    storage_config,
    topic_defaults,
)


def test_defaults_are_those_of_the_struct() -> None:
    assert log_config({}) == LogConfig()
    assert storage_config(BROKER_CONFIGS.parse({})) == StorageConfig()


def test_a_topic_overrides_the_broker() -> None:
    defaults = topic_defaults(BROKER_CONFIGS.parse({"log.segment.bytes": "2000000"}))
    assert log_config({}, defaults).segment_bytes == 2_000_000
    assert log_config({"segment.bytes": "3000000"}, defaults).segment_bytes == 3_000_000


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "5"}, 300_000),
        ({"log.retention.minutes": "5", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_most_specific_broker_key_wins(given: dict[str, str], expected: int) -> None:
    defaults = topic_defaults(BROKER_CONFIGS.parse(given))
    assert log_config({}, defaults).retention_ms == expected


def test_the_error_of_a_value_out_of_range_names_the_key() -> None:
    with pytest.raises(ConfigError, match=r"segment\.bytes"):
        log_config({"segment.bytes": "100"})


def test_every_field_of_a_log_config_is_a_topic_key() -> None:
    elsewhere = {"leader.replication.throttled.replicas",
                 "follower.replication.throttled.replicas",
                 "errors.deadletterqueue.group.enable",
                 # Its value becomes that of segment.bytes.
                 INTERNAL_SEGMENT_BYTES,
                 "unclean.leader.election.enable"}  # fmt: skip
    shortened = {
        "remote_log_copy_disable": "remote_copy_disable",
        "remote_log_delete_on_disable": "remote_delete_on_disable",
    }
    attributes = {key.attribute for key in TOPIC_CONFIGS if key.name not in elsewhere}
    names = {shortened.get(attribute, attribute) for attribute in attributes}
    worked_out = {
        "segment_ms_max",
        "keeps_batches",
        "has_log_append_time",
        "keeps_coordinator_batches",
        "is_remote",
    }
    assert set(LogConfig.__struct_fields__) - worked_out == names


def test_the_internal_segment_size_has_no_lower_limit_and_takes_precedence() -> None:
    given = {"segment.bytes": "2000000", INTERNAL_SEGMENT_BYTES: "1000"}
    assert log_config(given).segment_bytes == 1000
    with pytest.raises(ConfigError, match=r"internal\.segment\.bytes"):
        log_config({INTERNAL_SEGMENT_BYTES: "0"})


@pytest.mark.parametrize(
    ("own", "may_be_remote", "is_remote"),
    [
        ({"remote.storage.enable": "true"}, True, True),
        ({"remote.storage.enable": "true", "cleanup.policy": ""}, True, True),
        ({"remote.storage.enable": "true", "cleanup.policy": "compact"}, True, False),
        ({"remote.storage.enable": "true", "cleanup.policy": "compact,delete"}, True, False),
        ({"remote.storage.enable": "true"}, False, False),
        ({}, True, False),
    ],
)
def test_a_log_has_a_remote_tier_if_broker_and_topic_have_it_and_it_is_not_compacted(
    own: dict[str, str], may_be_remote: bool, is_remote: bool
) -> None:
    assert log_config(own, may_be_remote=may_be_remote).is_remote is is_remote


def test_segments_are_not_copied_without_a_tier_or_while_copies_are_disabled() -> None:
    own = {"remote.storage.enable": "true"}
    assert log_config(own, may_be_remote=True).copies_to_remote
    assert not log_config(own).copies_to_remote
    own["remote.log.copy.disable"] = "true"
    config = log_config(own, may_be_remote=True)
    assert config.is_remote
    assert not config.copies_to_remote


def test_local_retention_and_copy_lag_inherit_from_the_wider_value() -> None:
    config = log_config({"retention.ms": "5000", "retention.bytes": "700"})
    assert (config.effective_local_retention_ms, config.effective_local_retention_bytes) == (
        5000,
        700,
    )
    # remote.copy.lag.ms is 0 by default, so segments are copied at once.
    assert (config.effective_remote_copy_lag_ms, config.effective_remote_copy_lag_bytes) == (0, 700)
    own = {"local.retention.ms": "10", "local.retention.bytes": "-1", "remote.copy.lag.ms": "-1"}
    config = log_config(own)
    assert (config.effective_local_retention_ms, config.effective_local_retention_bytes) == (10, -1)
    assert (config.effective_remote_copy_lag_ms, config.effective_remote_copy_lag_bytes) == (10, -1)
    config = log_config({**own, "remote.copy.lag.ms": "3", "remote.copy.lag.bytes": "4"})
    assert (config.effective_remote_copy_lag_ms, config.effective_remote_copy_lag_bytes) == (3, 4)


def test_topics_inherit_local_retention_and_copy_lag_from_the_broker() -> None:
    given = {
        "log.local.retention.ms": "1",
        "log.local.retention.bytes": "2",
        "log.remote.copy.lag.ms": "3",
        "log.remote.copy.lag.bytes": "4",
    }
    config = log_config({}, topic_defaults(BROKER_CONFIGS.parse(given)))
    assert config.local_retention_ms == 1
    assert config.local_retention_bytes == 2
    assert config.remote_copy_lag_ms == 3
    assert config.remote_copy_lag_bytes == 4
