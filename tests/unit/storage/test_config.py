"""Topic configs and the broker keys behind them."""

from __future__ import annotations

import pytest

from barnabas.settings.definition import ConfigError
from barnabas.storage.config import (
    BROKER_CONFIGS,
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
                 "unclean.leader.election.enable"}  # fmt: skip
    names = {key.attribute for key in TOPIC_CONFIGS if key.name not in elsewhere}
    worked_out = {
        "segment_ms_max",
        "keeps_batches",
        "has_log_append_time",
        "keeps_coordinator_batches",
    }
    assert set(LogConfig.__struct_fields__) - worked_out == names
