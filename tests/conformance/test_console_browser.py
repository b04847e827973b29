"""The web console in Chromium: keyboard, log-in, live updates, narrow and dark windows."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from barnabas.client.facade import Client
from tools.chromium import IS_INSTALLED, Chromium

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]

HOSTILE = '"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
TOPIC = "browser-records"
PAGES = (
    "/", "/topics", f"/topic?name={TOPIC}", f"/messages?topic={TOPIC}",
    f"/message?topic={TOPIC}&partition=0&offset=0", "/groups", "/reassignments", "/security",
    "/why", "/doctor", f"/produce?topic={TOPIC}", "/login",
)  # fmt: skip


class Running(NamedTuple):
    """A console process; `url` has no slash at its end."""

    url: str
    password: str
    bootstrap: str


@pytest.fixture(scope="module")
def running(clients_bootstrap: str) -> Iterator[Running]:
    with Client(clients_bootstrap) as client:
        client.create_topic(TOPIC, 1, 1)
        with client.producer() as producer:
            hostile = HOSTILE.encode()
            producer.send(TOPIC, hostile, hostile, headers=[(HOSTILE, hostile)]).result()
        client.commit_offsets(HOSTILE, {(TOPIC, 0): 0})
    words = ["console", "-b", clients_bootstrap, "--port", "0", "--allow-changes"]
    command = [sys.executable, "-m", "barnabas", *words, "--interval", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        password = re.fullmatch(r"password for one log-in: (\S+)\n", process.stdout.readline())
        url = re.fullmatch(r"ready (\S+)/\n", process.stdout.readline())
        assert password is not None
        assert url is not None
        yield Running(url[1], password[1], clients_bootstrap)
        process.terminate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as made:
        yield made


def test_no_page_breaks_its_policy_or_overflows_a_narrow_window(
    running: Running, browser: Chromium
) -> None:
    browser.shape(400, 800, dark=False)
    for page in PAGES:
        browser.open(running.url + page)
        assert browser.run("document.querySelector('h1') !== null"), page
        assert browser.page_errors() == [], page
        assert browser.run("document.documentElement.scrollWidth") <= 400, page
        assert browser.run("window.hacked") is None, page
        unnamed = "[...document.querySelectorAll('input:not([type=hidden]),select,textarea')]"
        assert browser.run(f"{unnamed}.filter((each) => !each.labels.length).length") == 0, page


def test_the_colors_follow_the_scheme_of_the_user(running: Running, browser: Chromium) -> None:
    shown = []
    for dark in (False, True):
        browser.shape(1280, 800, dark=dark)
        browser.open(running.url + "/topics")
        shown.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert shown == ["rgb(255, 255, 255)", "rgb(19, 24, 23)"]


def test_the_keyboard_reaches_the_content_and_the_focus_is_visible(
    running: Running, browser: Chromium
) -> None:
    browser.open(running.url + "/topics")
    browser.press("Tab")
    assert browser.run("document.activeElement.textContent") == "Skip to the content"
    assert browser.run("document.activeElement.getBoundingClientRect().left >= 0")
    browser.press("Enter")
    browser.wait("document.activeElement.id === 'content'")
    browser.press("Tab")
    assert browser.run("document.activeElement.name") == "filter"
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_new_messages_appear_and_are_only_text(running: Running, browser: Chromium) -> None:
    browser.open(f"{running.url}/messages?topic={TOPIC}")
    browser.run("document.querySelector('button[data-tail]').click()")
    state = "document.getElementById('tail-state').textContent"
    browser.wait(f"{state}.startsWith('following')")
    with Client(running.bootstrap) as client, client.producer() as producer:
        producer.send(TOPIC, b"new " + HOSTILE.encode(), headers=[("h", b"<b>")]).result()
    first = "document.querySelector('#messages tr.new pre')?.textContent"
    assert browser.wait(first) == "new " + HOSTILE
    assert browser.run(state) == "following: 1 new"
    assert browser.run("window.hacked") is None
    assert browser.page_errors() == []


def test_a_person_logs_in_writes_a_message_and_a_live_page_shows_it(
    running: Running, browser: Chromium
) -> None:
    browser.open(f"{running.url}/login?next=/produce%3Ftopic%3D{TOPIC}")
    browser.type(running.password)
    browser.events.clear()
    browser.press("Enter")
    browser.wait_for_load()
    assert browser.run("document.cookie") == ""
    browser.run("document.querySelector('textarea[name=value]').focus()")
    browser.type('{"written": "by hand"}')
    browser.events.clear()
    browser.run("document.querySelector('main form button').click()")
    browser.wait_for_load()
    assert browser.run("document.querySelector('.notice.ok').textContent").startswith("wrote to")
    assert '  "written": "by hand"' in browser.run("document.querySelector('pre.json').textContent")
    browser.open(f"{running.url}/topic?name={TOPIC}")
    end = "document.querySelector('#live-topic tbody td:nth-of-type(6)').textContent"
    before = browser.run(end)
    with Client(running.bootstrap) as client, client.producer() as producer:
        producer.send(TOPIC, b"another").result()
    assert browser.wait(f"{end} !== {before!r}")
    assert browser.page_errors() == []
