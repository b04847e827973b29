"""Templates, filters and lines of the console."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.client.admin.configs import ConfigEntry, ConfigSynonym
from barnabas.console.formats import moment, number, rate, size
from barnabas.console.forms import Fields, FormError
from barnabas.console.navigation import Navigation
from barnabas.console.plans.config_sources import explained_configs, inherited_times
from barnabas.console.rendering import Renderer, assets, link, paged

CONSOLE = Path(__file__).parents[3] / "src" / "barnabas" / "console"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (-1, "–"), (0, "0 B"), (1536, "1.5 KiB"), (2**70, "1048576 PiB")],
)
def test_sizes_have_units(value: float | None, text: str) -> None:
    assert size(value) == text


def test_numbers_rates_and_times_are_readable() -> None:
    assert number(1234567).replace("\N{NARROW NO-BREAK SPACE}", " ") == "1 234 567"
    assert (rate(0), rate(0.25), rate(None)) == ("0", "0.2", "–")
    assert moment(0) == "1970-01-01 00:00:00.000Z"
    assert moment(-1) == "–"
    assert moment(2**62) == str(2**62)


def test_links_quote_hostile_names() -> None:
    assert link("/group", id='a&b="<', page=None) == "/group?id=a%26b%3D%22%3C"


def test_a_table_is_cut_into_pages() -> None:
    page = paged(range(250), 9)
    assert (list(page.rows), page.number, page.last, page.total) == (
        list(range(200, 250)),
        3,
        3,
        250,
    )
    assert paged([], 1).last == 1


def test_configs_that_differ_come_first_with_their_reason() -> None:
    own = ConfigEntry(
        "retention.ms", "5", "topic", False, False, False,
        synonyms=(
            ConfigSynonym("retention.ms", "5", "topic"),
            ConfigSynonym("log.retention.ms", "9", "default"),
        ),
    )  # fmt: skip
    of_file = ConfigEntry(
        "segment.bytes", "7", "static broker", False, False, False,
        synonyms=(ConfigSynonym("log.segment.bytes", "7", "static broker"),),
    )  # fmt: skip
    plain = ConfigEntry("a", "1", "default", True, False, False)
    found = explained_configs([plain, of_file, own])
    assert [each.name for each in found] == ["retention.ms", "segment.bytes", "a"]
    assert (found[0].default, found[0].reason) == ("9", "set on this topic")
    assert found[1].reason == "set in the broker's file as log.segment.bytes"


@pytest.mark.parametrize("text", ["x", "-1", "1" * 40, "1.5"])
def test_numbers_of_forms_are_checked(text: str) -> None:
    with pytest.raises(FormError):
        Fields([("n", text)]).number("n")


def test_lists_and_confirmations_of_forms_are_checked() -> None:
    fields = Fields([("brokers", "1, 2"), ("bad", "1,,x"), ("confirm", "b")])
    assert fields.integers("brokers") == [1, 2]
    with pytest.raises(FormError):
        fields.integers("bad")
    with pytest.raises(FormError, match="type a"):
        fields.confirm("a")


def test_pages_have_no_inline_script_style_or_foreign_address() -> None:
    """The policy would block them."""
    for path in (CONSOLE / "templates").iterdir():
        text = path.read_text()
        assert not re.search(r"\sstyle=|\son\w+=|<style|javascript:|https?://", text), path.name
        assert not re.search(r"<script(?! src)", text), path.name
        assert "|safe" not in text, path.name


def test_assets_are_small_and_their_addresses_change_with_their_content() -> None:
    found = assets()
    assert set(found) == {"console.css", "console.js", "icon.svg", "writing.js"}
    assert sum(len(each.content.splitlines()) for each in found.values()) < 500
    assert Renderer(found).render("problem.html", _problem()).count("?v=") == 3


def test_hostile_text_is_escaped_and_marks_for_its_direction_are_shown() -> None:
    page = Renderer(assets()).render("problem.html", _problem("<b>\u202e\x1b"))
    assert "&lt;b&gt;\\u202e\\x1b" in page


def _problem(text: str = "") -> dict[str, object]:
    return {
        "path": "/", "here": "/", "bootstrap": "b", "allow_changes": False, "has_login": False,
        "navigation": Navigation([], "", []),
        "session": None, "can_change": False, "csrf": "", "notices": [], "interval": 5.0,
        "cluster_names": [], "reload_s": None, "outage": None, "right": "",
        "sample_error": "", "title": "t", "text": text, "advice": "",
    }  # fmt: skip


def broker_entry(name: str, value: str | None) -> ConfigEntry:
    return ConfigEntry(name, value, "static broker", False, True, False)


@pytest.mark.parametrize(
    ("name", "values", "default"),
    [
        ("retention.ms", {"log.retention.hours": "168"}, "604800000"),
        ("retention.ms", {"log.retention.minutes": "2", "log.retention.hours": "168"}, "120000"),
        ("retention.ms", {"log.retention.ms": "-1", "log.retention.hours": "168"}, "-1"),
        ("retention.ms", {"log.retention.hours": "-1"}, "-1"),
        ("segment.ms", {"log.roll.ms": None, "log.roll.hours": "2"}, "7200000"),
        ("segment.jitter.ms", {"log.roll.jitter.hours": "0"}, "0"),
        ("flush.ms", {"log.flush.scheduler.interval.ms": "9"}, "9"),
        ("retention.bytes", {"log.retention.hours": "168"}, None),
    ],
)
def test_the_default_of_a_time_is_that_of_the_broker_in_its_unit(
    name: str, values: dict[str, str | None], default: str | None
) -> None:
    inherited = inherited_times(broker_entry(key, value) for key, value in values.items())
    own = ConfigEntry(name, "5", "topic", False, False, False)
    (found,) = explained_configs([own], inherited)
    assert (found.value, found.default, found.differs) == ("5", default, True)
