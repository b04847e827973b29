"""The configs of a topic as a form."""

from __future__ import annotations

import pytest

from barnabas.client.admin.configs import ConfigEntry, ConfigSynonym
from barnabas.console.forms import Fields, FormError
from barnabas.console.plans.topic_settings import (
    Setting,
    _known_settings,
    changed_configs,
    settings_of,
    typed_configs,
)


def entry(name: str, value: str, source: str, *synonyms: tuple[str, str]) -> ConfigEntry:
    found = tuple(ConfigSynonym(name, value, source) for value, source in synonyms)
    is_default = source == "default"
    return ConfigEntry(name, value, source, is_default, False, False, "string", found)


def test_a_setting_has_its_own_value_and_the_one_that_it_would_inherit() -> None:
    entries = [
        entry("retention.ms", "5", "topic", ("5", "topic")),
        entry("segment.ms", "6", "static broker", ("6", "static broker"), ("7", "default")),
        entry("max.message.bytes", "8", "topic", ("8", "topic"), ("9", "default")),
    ]
    found = {each.name: each for each in settings_of(entries, {"retention.ms": "604800000"})}
    own_and_inherited = {name: (each.own, each.inherited) for name, each in found.items()}
    assert own_and_inherited == {
        "retention.ms": ("5", "604800000"),
        "segment.ms": (None, "6"),
        "max.message.bytes": ("8", "9"),
    }
    assert found["retention.ms"].inherited_meaning == "7d"


def test_the_configs_of_most_users_come_first_and_have_choices_and_help() -> None:
    found = _known_settings()
    assert [each.name for each in found[:2]] == ["cleanup.policy", "retention.ms"]
    by_name = {each.name: each for each in found}
    assert by_name["cleanup.policy"].choices == ("delete", "compact", "compact,delete")
    assert "LogAppendTime" in by_name["message.timestamp.type"].choices
    assert by_name["unclean.leader.election.enable"].choices == ("true", "false")
    assert by_name["retention.ms"].choices == ()
    assert all(each.documentation for each in found)


def form(**configs: str) -> Fields:
    return Fields([(f"config:{name.replace('_', '.')}", text) for name, text in configs.items()])


def test_units_become_the_numbers_of_brokers() -> None:
    typed = typed_configs(form(retention_ms="7d", segment_bytes="1GiB", cleanup_policy="compact"))
    assert typed == {
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "cleanup.policy": "compact",
    }


def test_a_wrong_unit_is_refused_at_its_field() -> None:
    with pytest.raises(FormError, match="unknown unit") as found:
        typed_configs(form(retention_ms="7x"))
    assert found.value.field == "config:retention.ms"


def test_further_configs_are_lines() -> None:
    assert typed_configs(Fields([("configs", " a.ms = 2s \n\nb=c=d")])) == {
        "a.ms": "2000",
        "b": "c=d",
    }
    with pytest.raises(FormError, match="key=value"):
        typed_configs(Fields([("configs", "a")]))


def test_only_differing_fields_change_and_emptied_fields_reset() -> None:
    settings = [
        Setting("retention.ms", "604800000", "1", "", (), True),
        Setting("segment.ms", "5", "1", "", (), True),
        Setting("flush.ms", None, "1", "", (), True),
        Setting("segment.bytes", "7", "1", "", (), True),
    ]
    given = form(retention_ms="7d", segment_ms="", flush_ms="2s")
    assert changed_configs(settings, given) == {"flush.ms": "2000", "segment.ms": None}
