"""Keys, their values, and errors that contain the allowed values."""

from __future__ import annotations

import msgspec
import pytest

from barnabas.settings.definition import (
    REQUIRED,
    ConfigDefinition,
    ConfigError,
    ConfigKey,
    ConfigType,
    Synonym,
    markdown_table,
)
from barnabas.settings.key import at_least, between, each_one_of, one_of

RETENTION = ConfigKey("retention.ms", ConfigType.LONG, 604_800_000, "How long.", at_least(-1))
POLICY = ConfigKey(
    "cleanup.policy", ConfigType.LIST, ["delete"], "What.", each_one_of("compact", "delete")
)
DEFINITION = ConfigDefinition(
    [
        RETENTION,
        POLICY,
        ConfigKey("min.cleanable.dirty.ratio", ConfigType.DOUBLE, 0.5, "Share.", between(0, 1)),
        ConfigKey("preallocate", ConfigType.BOOLEAN, False, "Ahead."),
        ConfigKey("rack", ConfigType.STRING, None, "Where."),
    ]
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " True ", True),
        (ConfigType.INT, "+5", 5),
        (ConfigType.INT, "-2147483648", -2147483648),
        (ConfigType.LONG, "9223372036854775807", 9223372036854775807),
        (ConfigType.DOUBLE, "1e-3", 0.001),
        (ConfigType.LIST, "a , b,c", ["a", "b", "c"]),
        (ConfigType.LIST, "  ", []),
        (ConfigType.STRING, " x ", "x"),
        (ConfigType.PASSWORD, " x ", " x "),
    ],
)
def test_values_are_read_as_kafka_reads_them(kind: ConfigType, text: str, value: object) -> None:
    assert ConfigKey("k", kind, None, "").parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "٣"),
        (ConfigType.INT, ""),
        (ConfigType.SHORT, "40000"),
        (ConfigType.LONG, "9" * 5000),
        (ConfigType.DOUBLE, "nan"),
    ],
)
def test_text_that_is_not_of_the_type_is_an_error(kind: ConfigType, text: str) -> None:
    with pytest.raises(ConfigError):
        ConfigKey("k", kind, None, "").parse(text)


def test_an_error_contains_the_key_the_value_and_the_allowed_values() -> None:
    with pytest.raises(ConfigError) as caught:
        DEFINITION.parse({"retention.ms": "-2"})
    message = str(caught.value)
    assert "retention.ms" in message
    assert "'-2'" in message
    assert "at least -1" in message


def test_an_error_never_shows_a_password() -> None:
    key = ConfigKey("p", ConfigType.PASSWORD, None, "", one_of("a"))
    with pytest.raises(ConfigError) as caught:
        key.parse("geheim")
    assert "geheim" not in str(caught.value)


def test_keys_that_are_not_given_take_their_defaults() -> None:
    parsed = DEFINITION.parse({"retention.ms": "5"})
    assert parsed.integer("retention.ms") == 5
    assert parsed.strings("cleanup.policy") == ["delete"]
    assert parsed.given == {"retention.ms"}


def test_given_defaults_override_declared_defaults() -> None:
    assert DEFINITION.parse({}, {"retention.ms": 7}).integer("retention.ms") == 7


def test_unknown_keys_are_listed() -> None:
    assert DEFINITION.parse({"x": "1"}).unknown == ["x"]


def test_a_required_key_must_be_given() -> None:
    definition = ConfigDefinition([ConfigKey("node.id", ConfigType.INT, REQUIRED, "")])
    with pytest.raises(ConfigError, match="node"):
        definition.parse({})


def test_a_config_struct_is_built_by_the_names_of_its_fields() -> None:
    class Part(msgspec.Struct, frozen=True):
        retention_ms: int
        preallocate: bool

    assert DEFINITION.parse({"preallocate": "true"}).build(Part) == Part(604_800_000, True)


def test_values_are_shown_as_kafka_shows_them() -> None:
    parsed = DEFINITION.parse({"cleanup.policy": "compact, delete"})
    assert parsed.text("cleanup.policy") == "compact,delete"
    assert parsed.text("preallocate") == "false"
    assert DEFINITION.key("min.cleanable.dirty.ratio").format(1.5e308) == "1.5E308"
    assert parsed.text("rack") is None


@pytest.mark.parametrize(
    ("kind", "text", "shown"),
    [
        (ConfigType.LONG, " +0300 ", "300"),
        (ConfigType.BOOLEAN, "True", "true"),
        (ConfigType.LIST, " a , b,a", "a,b"),
        (ConfigType.DOUBLE, "1e-5", "1.0E-5"),
        (ConfigType.DOUBLE, ".5f", "0.5"),
        (ConfigType.DOUBLE, "9999999", "9999999.0"),
        (ConfigType.DOUBLE, "-123456789.5", "-1.234567895E8"),
        (ConfigType.DOUBLE, "1e400", "Infinity"),
        (ConfigType.INT, "no number", "no number"),
    ],
)
def test_values_are_shown_in_their_normal_form(kind: ConfigType, text: str, shown: str) -> None:
    assert ConfigKey("k", kind, None, "", distinct=True).normal(text) == shown


def test_a_synonym_converts_its_unit_and_keeps_no_limit() -> None:
    hours = Synonym("log.retention.hours", 3_600_000, least=-1)
    assert (hours.convert(2), hours.convert(-1)) == (7_200_000, -1)


def test_the_listing_has_one_row_per_key() -> None:
    table = markdown_table(DEFINITION)
    assert table.count("\n") == 2 + len(DEFINITION)
    assert "| `retention.ms` | long | `604800000` | at least -1 | read-only | How long. |" in table
