"""Numbers, and durations and sizes with units, in options and configs."""

from __future__ import annotations

import click
import pytest

from barnabas.cli.common.units import (
    NumberRange,
    Seconds,
    Size,
    config_meaning,
    config_text,
    duration_ms,
    duration_text,
    short_time,
    size_bytes,
)
from unit.cli.leaf_commands import LEAVES


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "many"])
def test_an_option_for_a_number_refuses_what_is_no_number(text: str) -> None:
    with pytest.raises(click.BadParameter):
        NumberRange(0).convert(text, None, None)
    assert NumberRange(0).convert("0.5", None, None) == 0.5


def test_options_for_seconds_and_sizes_take_units() -> None:
    assert Seconds(0).convert("500ms", None, None) == 0.5
    assert Seconds(0).convert("2m", None, None) == 120
    assert Seconds(0).convert("3", None, None) == 3
    assert Size(1).convert("50MB", None, None) == 50_000_000
    for text in ("fast", "0", "1X"):
        with pytest.raises(click.BadParameter):
            Size(1).convert(text, None, None)


def test_all_options_for_numbers_refuse_what_is_no_number() -> None:
    types = [
        each.type
        for _, command in LEAVES
        for each in command.params
        if each.type.name.startswith("float")
    ]
    assert types
    assert all(isinstance(each, NumberRange) for each in types)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("1 h", 3_600_000),
        ("PT0S", 0),
        ("P1DT2H3M4S", 93_784_000),
        ("P", None),
        ("15", None),
        ("-1h", None),
        ("1 h 5", None),
    ],
)
def test_durations_in_short_and_in_iso_form(text: str, milliseconds: int | None) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512),
        ("512B", 512),
        ("100kB", 100_000),
        ("128MiB", 128 << 20),
        ("1GiB", 1 << 30),
        ("1 GiB", 1 << 30),
        ("1gib", 1 << 30),
        ("1.5kB", 1500),
        ("0.5", None),
        ("1G", None),
        ("-1", None),
        ("", None),
    ],
)
def test_sizes_with_binary_and_decimal_units(text: str, size: int | None) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    ("key", "text", "sent"),
    [
        ("retention.ms", "7d", "604800000"),
        ("log.retention.hours", "7d", "168"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "5000", "5000"),
        ("retention.bytes", "1GiB", "1073741824"),
        ("consumer_byte_rate", "10MiB", "10485760"),
        # Without a unit in the key, the text is a text.
        ("client.id", "7d", "7d"),
        ("cleanup.policy", "compact", "compact"),
        ("retention.ms", "2w", "1209600000"),
        ("max.message.bytes", "2MB", "2000000"),
        ("segment.bytes", "1.5gib", "1610612736"),
    ],
)
def test_the_key_tells_the_unit_of_a_config(key: str, text: str, sent: str) -> None:
    assert config_text(key, text) == sent


@pytest.mark.parametrize(
    ("key", "text"), [("retention.ms", "1GiB"), ("segment.bytes", "7d"), ("segment.bytes", "1G")]
)
def test_an_unknown_unit_is_refused(key: str, text: str) -> None:
    with pytest.raises(click.UsageError, match=f"{key}={text}: unknown unit; write "):
        config_text(key, text)


@pytest.mark.parametrize(
    ("key", "text", "meaning"),
    [
        ("retention.ms", "604800000", "7d"),
        ("retention.ms", "5400000", "1h 30m"),
        ("log.retention.hours", "168", "7d"),
        ("retention.ms", "-1", "no limit"),
        ("flush.ms", "9223372036854775807", "no limit"),
        ("retention.ms", "5", ""),
        ("segment.bytes", "1073741824", "1.0 GiB"),
        ("segment.bytes", "100", ""),
        ("min.insync.replicas", "1000000", ""),
        ("cleanup.policy", "delete", ""),
        ("retention.ms", None, ""),
    ],
)
def test_the_value_of_a_config_is_shown_in_larger_units(
    key: str, text: str | None, meaning: str
) -> None:
    assert config_meaning(key, text) == meaning


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0s"), (45, "45s"), (200, "3m 20s"), (7200, "2h"), (3601, "1h"), (90_000, "1d 1h")],
)
def test_durations_are_shown_in_one_or_two_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_duration_must_be_whole_in_the_unit_of_its_key() -> None:
    with pytest.raises(click.UsageError, match=r"log\.retention\.hours=90s: .* whole hours"):
        config_text("log.retention.hours", "90s")


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (0.25, "0.2 ms"),
        (12.4, "12 ms"),
        (999.7, "1.0 s"),
        (90_000, "90 s"),
        (130_000, "2.2 min"),
        (7_200_000, "2.0 h"),
        (8_640_000_000, "100 d"),
    ],
)
def test_times_are_abbreviated(time_ms: float | None, text: str) -> None:
    assert short_time(time_ms) == text
