"""Values of configuration keys, including texts that are slow to parse."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from barnabas.replication.replication_throttle import ReplicationThrottle
from barnabas.server.configs.config_admin import names_broker
from barnabas.server.configs.endpoints import parse_address
from barnabas.server.quotas.config import parse_overrides
from barnabas.settings import key as key_module
from barnabas.settings.key import ConfigError, ConfigKey, ConfigType, whole_number
from barnabas.sim.clock import SimClock, SimScheduler
from barnabas.storage.config import TOPIC_CONFIGS

# Of the length that a config may have.
_LONG = 32_767
_NUMBER = ConfigKey("number", ConfigType.DOUBLE, 0.0, "")
_LIST = ConfigKey("list", ConfigType.LIST, [], "")
_WHOLE = ConfigKey("whole", ConfigType.LONG, 0, "")
_JAVA_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?")


def test_no_regular_expression_reads_values() -> None:
    # Those that were here took minutes for one value: two runs of digits, or of blanks, in a row.
    assert not hasattr(key_module, "re")


@given(st.text("0123456789.eE+-fFdDx ", max_size=8))
def test_decimals_are_parsed_as_in_java(text: str) -> None:
    expected = _JAVA_DECIMAL.fullmatch(text.strip()) is not None
    try:
        _NUMBER.parse(text)
    except ConfigError:
        assert not expected
    else:
        assert expected


@given(st.text("ab ,\t", max_size=12))
def test_lists_are_split_at_commas_without_the_blanks_around_them(text: str) -> None:
    stripped = text.strip()
    expected = re.split(r"\s*,\s*", stripped) if stripped else []
    assert _LIST.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["1" * _LONG + "x", "1" * _LONG + "." + "1" * _LONG + "x", "1e" + "9" * _LONG + "x"]
)
def test_long_invalid_numbers_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        _NUMBER.parse(text)


def test_long_numbers_are_parsed() -> None:
    assert _NUMBER.parse("1" * _LONG) == float("inf")
    assert _NUMBER.parse("0." + "0" * _LONG + "1") == 0.0
    assert _NUMBER.parse("1e-" + "9" * _LONG) == 0.0


def test_a_long_list_of_blanks_is_one_item() -> None:
    assert _LIST.parse("a" + " " * _LONG + "b") == ["a" + " " * _LONG + "b"]


@pytest.mark.parametrize("text", ["9" * 5000, "-" + "9" * 5000, "9" * 19, "1_0", "٣", "", "+"])
def test_malformed_integers_are_rejected(text: str) -> None:
    assert whole_number(text, 64) is None
    with pytest.raises(ConfigError):
        _WHOLE.parse(text)


def test_numbers_with_more_digits_than_python_parses_are_rejected() -> None:
    digits = "9" * 5000
    assert parse_address(f"host:{digits}") is None
    assert parse_overrides(f"10.0.0.1:{digits}") is None
    assert not names_broker(digits, 1)
    key = TOPIC_CONFIGS.key("leader.replication.throttled.replicas")
    for text in (f"0:{digits}", f"{digits}:0", "0:99999999999", "0:1:2", "a:b"):
        with pytest.raises(ConfigError):
            key.parse(text)
    assert key.parse("0:1,1:2147483647") == ["0:1", "1:2147483647"]


def test_throttled_replicas_that_cannot_be_read_throttle_nothing() -> None:
    throttle = ReplicationThrottle(SimClock(SimScheduler()), 1, 1000)
    # As a controller of another version may have let them pass.
    throttle.set_replicas("t", ["0:1", "", "x", "7:" + "9" * 5000, "9" * 5000 + ":1"], 1)
    assert throttle._throttled == {"t": frozenset({0})}
