"""Work by keyboard only, and what all pages of a console load, in Chromium."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from barnabas.client.facade import Client
from barnabas.console.settings import ConsoleSettings
from conformance.console_process import running_console
from conformance.console_user import ConsoleUser
from conformance.page_checks import PAGE_BYTES_MAX, REQUESTS_MAX, poor_layout, sizes, violations
from console_in_process import NO_BROKER, ConsoleInProcess
from selection import nightly_rows_unless
from tools.chromium import IS_INSTALLED, Chromium

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]

TOPIC, GROUP = "keyboard-records", "keyboard-group"
OF_RECORD = f"?topic={TOPIC}&partition=0&offset=1"
# The queries of pages that need one.
QUERIES = {
    "/broker": "?id=1", "/topic": f"?name={TOPIC}", "/topic/edit": f"?name={TOPIC}",
    "/group": f"?id={GROUP}", "/messages": f"?topic={TOPIC}", "/message": OF_RECORD,
    "/message/versions": OF_RECORD, "/message/difference": OF_RECORD,
    "/resend": f"?topic={TOPIC}&at=0-1", "/produce": f"?topic={TOPIC}",
    "/transactions/producers": f"?topic={TOPIC}", "/schema": "?subject=absent",
    "/connect/connector": "?cluster=local&name=absent", "/connect/form": "?cluster=local",
    "/link": "?name=absent",
    "/why": "?ask=1", "/doctor": "?ask=1", "/reassignments/plan": "?plan=1",
    "/security/rights": "?principal=User:eve",
}  # fmt: skip
# Parts of pages, streams and downloads, which no user opens as a page.
NO_PAGES = {"/found", "/messages/tail", "/messages/download", "/group/offsets.csv"}
TABS_MAX = 400


@pytest.fixture(scope="module")
def paths() -> list[str]:
    """All pages that a console has, with a query where a page needs one."""
    with ConsoleInProcess(ConsoleSettings("127.0.0.1:1", NO_BROKER)) as console:
        return [each + QUERIES.get(each, "") for each in console.paths if each not in NO_PAGES]


@pytest.fixture(scope="module")
def user(clients_bootstrap: str) -> Iterator[ConsoleUser]:
    with Client(clients_bootstrap) as client:
        client.create_topic(TOPIC, 1, 1)
        with client.producer() as producer:
            for number in range(20):
                producer.send(TOPIC, b'{"n": %d}' % number, b"key")
        client.commit_offsets(GROUP, {(TOPIC, 0): 5})
    with running_console(clients_bootstrap, "--interval", "2") as running, Chromium() as browser:
        running.log_in(browser, "/topics")
        yield ConsoleUser(browser, running.url)


def test_no_page_loads_more_than_its_budget_or_anything_of_another_host(
    user: ConsoleUser, paths: list[str]
) -> None:
    assert len(paths) > 30
    browser = user.browser
    found = {}
    for path in paths:
        user.open(path)
        size = sizes(browser)
        if size["requests"] > REQUESTS_MAX or size["bytes"] > PAGE_BYTES_MAX:
            found[path] = size
        asked = [
            event["request"]["url"]
            for method, event in browser.events
            if method == "Network.requestWillBeSent"
        ]
        hosts = {urlsplit(each).netloc for each in asked} - {urlsplit(user.url).netloc, ""}
        assert (path, hosts) == (path, set())
    assert found == {}


@pytest.mark.parametrize(
    ("width", "dark"),
    nightly_rows_unless((400, True).__eq__, [(400, False), (400, True), (1280, True)]),
)
def test_axe_finds_nothing_on_any_page(
    user: ConsoleUser, paths: list[str], width: int, dark: bool
) -> None:
    user.browser.shape(width, 900, dark=dark)
    found = {}
    for path in paths:
        user.open(path)
        found[path] = violations(user.browser)
    user.browser.shape(1280, 900, dark=False)
    assert {path: each for path, each in found.items() if each} == {}


def reach(user: ConsoleUser, name: str) -> None:
    """Press Tab until a control has the focus, which each control on the way shows."""
    browser = user.browser
    described = """(() => {
      const e = document.activeElement;
      const label = e.labels?.[0]?.cloneNode(true);
      label?.querySelectorAll("input, select, textarea").forEach((each) => each.remove());
      const text = e.getAttribute("aria-label") || label?.textContent || e.innerText || "";
      const is_seen = getComputedStyle(e).outlineStyle === "solid" || e.matches(".skip, body");
      return [text.replace(/\\s+/g, " ").trim(), is_seen];
    })()"""
    passed = []
    for _ in range(TABS_MAX):
        browser.press("Tab")
        text, is_seen = browser.run(described)
        assert is_seen, f"{text} has the focus and does not show it"
        passed.append(text)
        if re.match(rf"{re.escape(name)}\b", text, re.IGNORECASE):
            return
    raise AssertionError(f"Tab does not reach {name}: {passed}")


def enter(user: ConsoleUser) -> None:
    """Press Enter, and wait for the page that it leads to."""
    user.browser.events.clear()
    user.browser.press("Enter")
    user.browser.wait_for_load()


def skip_to_the_content(user: ConsoleUser) -> None:
    reach(user, "Skip to the content")
    user.browser.press("Enter")
    user.browser.wait("document.activeElement.id === 'content'")


def write(user: ConsoleUser, text: str) -> None:
    user.browser.send("Input.insertText", text=text)
    assert user.browser.run("document.activeElement.value").endswith(text)


def test_a_message_is_found_by_keyboard(user: ConsoleUser) -> None:
    user.open("/topics", q=TOPIC)
    skip_to_the_content(user)
    reach(user, f"search messages of {TOPIC}")
    enter(user)
    skip_to_the_content(user)
    reach(user, "Contains")
    write(user, '"n": 17')
    enter(user)
    user.sees("1 found")
    skip_to_the_content(user)
    reach(user, "0:17")
    enter(user)
    user.sees("offset 17", '"n": 17')


def test_a_topic_is_created_by_keyboard(user: ConsoleUser) -> None:
    user.open("/topics")
    skip_to_the_content(user)
    reach(user, "Create a topic")
    enter(user)
    skip_to_the_content(user)
    for label, text in (("Name", "keyboard-made"), ("Partitions", "2"), ("Replicas", "1")):
        reach(user, label)
        write(user, text)
    reach(user, "retention.ms")
    write(user, "2d")
    enter(user)
    user.sees("created topic keyboard-made")


def test_offsets_are_reset_by_keyboard(user: ConsoleUser) -> None:
    user.open("/group", id=GROUP)
    skip_to_the_content(user)
    reach(user, "Move the offsets")
    user.browser.press("Enter")
    reach(user, "To")
    # The list of choices changes by the arrows.
    for _ in range(20):
        chosen = user.browser.run("document.activeElement.selectedOptions[0].text")
        if chosen == "the end":
            break
        user.browser.press("ArrowDown")
    assert chosen == "the end", json.dumps(chosen)
    reach(user, "Preview")
    enter(user)
    user.sees(f"{TOPIC}-0 5 20")
    skip_to_the_content(user)
    reach(user, "Move")
    enter(user)
    user.sees("moved")


@pytest.mark.parametrize(
    ("width", "dark"), nightly_rows_unless((400, True).__eq__, [(400, True), (1280, False)])
)
def test_a_preview_is_sorted_by_keyboard(user: ConsoleUser, width: int, dark: bool) -> None:
    user.browser.shape(width, 900, dark=dark)
    user.open("/topic/edit", name=TOPIC)
    for key in ("retention.ms", "segment.ms", "max.message.bytes"):
        user.type(key, "1000000")
    user.press("Preview")
    first, *_ = user.rows()[0]
    keys = [row[first] for row in user.rows()]
    assert {"retention.ms", "segment.ms", "max.message.bytes"} <= set(keys)
    for order in ("ascending", "descending"):
        skip_to_the_content(user)
        reach(user, first)
        enter(user)
        assert [row[first] for row in user.rows()] == sorted(keys, reverse=order == "descending")
        assert user.browser.run("document.querySelector('[aria-sort]').ariaSort") == order
        assert poor_layout(user.browser) + violations(user.browser) == []
    # The preview still does what it shows.
    user.press("Cancel")
    user.sees("retention.ms")
    user.browser.shape(1280, 900, dark=False)
