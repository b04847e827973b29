"""The page of messages in Chromium: a search that runs, values that open, and new messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from barnabas.client.facade import Client
from conformance.console_process import HOSTILE, Running, running_console
from conformance.console_user import ConsoleUser
from conformance.page_checks import poor_layout, violations
from tools.chromium import IS_INSTALLED, Chromium
from waiting import eventually

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]

TOPIC = "browser-search"
COUNT = 200_000
BATCH = 5_000
# Longer than a row of the list.
LONG_VALUE = b'{"n": 0, "text": "' + b"long " * 200 + HOSTILE.replace('"', "'").encode() + b'"}'
STATE = "document.getElementById('search').dataset.state"
# Takes a hundred steps for each message, so that a search of all of them takes many seconds.
SLOW = "[1,2,3,4,5,6,7,8,9,10].exists(x, [1,2,3,4,5,6,7,8,9,10].exists(y, x * y == -value.n))"
ROWS = "[...document.querySelectorAll('#messages tr[id]')].map((each) => each.textContent)"


@pytest.fixture(scope="module")
def running(clients_bootstrap: str) -> Iterator[Running]:
    """A console of a topic that takes seconds to search."""
    with Client(clients_bootstrap) as client:
        client.create_topic(TOPIC, 1, 1)
        with client.producer() as producer:
            producer.send_batch(TOPIC, [(b"first", LONG_VALUE, [], None)], 0)
            for start in range(0, COUNT, BATCH):
                numbers = range(start + 1, start + 1 + BATCH)
                batch = [(None, b'{"n":%d,"even":%d}' % (n, n % 2 == 0), [], None) for n in numbers]
                producer.send_batch(TOPIC, batch, 0)
    with running_console(clients_bootstrap) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as made:
        yield made


def test_a_search_shows_what_it_finds_while_it_runs_and_opened_values_stay_open(
    running: Running, browser: Chromium
) -> None:
    wanted = f"n={COUNT}&filter=value.n+%25+{COUNT}+%3D%3D+0"
    browser.open(f"{running.url}/messages?topic={TOPIC}&from=beginning&{wanted}")
    # The page may be shown before the search has found the first message.
    browser.wait("document.querySelector('#messages details') !== null")
    browser.run("document.querySelector('#messages details').open = true")
    assert browser.wait(f"{STATE} === 'done'", seconds=300)
    first, last = browser.run(ROWS)
    assert "long long" in first
    assert f"0:{COUNT}" in last
    assert browser.run("document.querySelector('#messages details').open")
    assert browser.run("window.hacked") is None
    assert "Everything was examined" in browser.run("document.body.textContent")
    # The checks of the layout do not know texts that scroll.
    browser.run("document.querySelector('#messages details').open = false")
    for width in (400, 1280):
        browser.shape(width, 900, dark=False)
        assert poor_layout(browser) == []
    assert violations(browser) == []
    assert browser.page_errors() == []


def test_a_long_search_is_stopped_and_goes_on(running: Running, browser: Chromium) -> None:
    user = ConsoleUser(browser, running.url)

    def examined() -> int:
        found = re.search(r"([\d ]+) of [\d ]+ offsets examined", user.text())
        return int(found[1].replace(" ", "")) if found else 0

    browser.open(f"{running.url}/messages?topic={TOPIC}&from=beginning&filter={quote(SLOW)}")
    user.sees("Searching", r"\d+ %")
    eventually(examined)
    user.press("Stop")
    user.sees("it was stopped")
    stopped_at = examined()
    assert stopped_at < COUNT
    user.press("Go on")
    user.sees("Searching")
    eventually(lambda: examined() > stopped_at)
    user.press("Stop")
    user.sees("it was stopped")


def test_a_value_is_copied_by_a_button(running: Running, browser: Chromium) -> None:
    browser.open(f"{running.url}/messages?topic={TOPIC}&offset=5&limit=1&columns=value")
    browser.send(
        "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
    )
    browser.run("document.querySelector('#messages [data-copy]').click()")
    assert browser.wait("document.querySelector('#messages [data-copy]').textContent !== 'Copy'")
    assert browser.page_errors() == []


def test_new_messages_fulfill_the_filter_and_have_the_columns(
    running: Running, browser: Chromium
) -> None:
    wanted = "filter=has(value.fresh)&columns=value.fresh,size"
    browser.open(f"{running.url}/messages?topic={TOPIC}&offset={COUNT}&{wanted}")
    browser.run("document.querySelector('[data-tail]').click()")
    browser.wait("document.getElementById('tail-state').textContent.startsWith('following')")
    with Client(running.bootstrap) as client, client.producer() as producer:
        producer.send(TOPIC, b'{"other": 1}', partition=0)
        producer.send(TOPIC, b'{"fresh": "<b>new</b>"}', partition=0)
    assert browser.wait(f"{ROWS}.some((each) => each.includes('<b>new</b>'))")
    assert len(browser.run(ROWS)) == 1
    assert browser.run("document.querySelector('#messages b')") is None
    assert browser.page_errors() == []
