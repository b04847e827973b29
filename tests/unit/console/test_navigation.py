"""Rows of links at the top of pages, and links below the prefix of a cluster."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from barnabas.console.navigation import Entry, navigation
from barnabas.console.rendering import Renderer, assets
from barnabas.console.settings import ConsoleSettings

ENTRIES = [
    Entry("Zoo", "Animals", "/zoo"),
    Entry("Topics", "Topics", "/topics", ("/topic",)),
    Entry("Cluster", "Overview", "/"),
    Entry("Cluster", "Quorum", "/quorum"),
    Entry("Cluster", "Hidden", "/hidden", is_shown=lambda settings: settings.allow_changes),
]
SETTINGS = ConsoleSettings("127.0.0.1:1", {})


def test_groups_have_a_fixed_order_and_lead_to_their_first_entry() -> None:
    shown = navigation(ENTRIES, "/nowhere", SETTINGS)
    assert [(each.title, each.path) for each in shown.groups] == [
        ("Cluster", "/"),
        ("Topics", "/topics"),
        ("Zoo", "/zoo"),
    ]
    assert not any(each.is_current for each in shown.groups)
    assert shown.entries == []


def test_pages_of_a_group_with_several_entries_show_them_in_a_second_row() -> None:
    shown = navigation(ENTRIES, "/quorum", SETTINGS)
    assert [each.title for each in shown.groups if each.is_current] == ["Cluster"]
    assert [(each.title, each.is_current) for each in shown.entries] == [
        ("Overview", False),
        ("Quorum", True),
    ]


def test_a_further_page_belongs_to_its_entry_and_a_lone_entry_has_no_second_row() -> None:
    shown = navigation(ENTRIES, "/topic", SETTINGS)
    assert [each.title for each in shown.groups if each.is_current] == ["Topics"]
    assert shown.entries == []


def test_links_of_templates_have_the_prefix_of_the_cluster_but_assets_are_shared() -> None:
    template = Renderer(assets(), "/east").environment.from_string(
        "{{ link('/topic', name='a b') }} {{ link('/') }} {{ asset('console.css') }}"
        "{% import 'parts.html' as parts %} {{ parts.topic('t') }}"
    )
    words = template.render().split()
    assert words[:2] == ["/east/topic?name=a+b", "/east/"]
    assert words[2].startswith("/static/console.css?v=")
    assert 'href="/east/topic?name=t">t</a>' in words


TEMPLATES = sorted(each.name for each in files("barnabas.console").joinpath("templates").iterdir())


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_template_writes_a_path_without_the_function_that_adds_the_prefix(name: str) -> None:
    text = files("barnabas.console").joinpath("templates", name).read_text("utf-8")
    targets = re.findall(r'(?:href|action|src|data-(?!label)[a-z-]+)="([^"]*)"', text)
    written = [each for each in targets if each and not each.startswith("#")]
    assert [each for each in written if "/" in each and "link(" not in each] == []
    assert not [each for each in written if each.startswith("/")]
