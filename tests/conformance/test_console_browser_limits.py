"""A console of one address that only reads, and how it limits clients, in Chromium."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from barnabas.client.facade import Client
from conformance.console_user import ConsoleUser
from tools.chromium import IS_INSTALLED, Chromium
from tools.console_output import READY, console_output, read_line
from waiting import eventually

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]

TOPIC = "limits-records"
# More than the connections that a console holds.
IDLE = 500


@pytest.fixture(scope="module")
def user(clients_bootstrap: str) -> Iterator[ConsoleUser]:
    """A user of a console without further options but a limit of one costly request a minute."""
    with Client(clients_bootstrap) as client:
        client.create_topic(TOPIC, 1, 1)
    options = ["-b", clients_bootstrap, "--costly-limit", "1"]
    with console_output(*options) as output, Chromium() as browser:
        yield ConsoleUser(browser, read_line(output, READY))


def test_a_console_only_reads_unless_an_option_allows_changes(user: ConsoleUser) -> None:
    user.open("/topic", name=TOPIC)
    text = user.sees(TOPIC, "Configs")
    assert [each for each in ("Write a message", "Edit configs", "Delete") if each in text] == []
    user.open("/topics/new")
    user.sees("This console is read-only: start it with --allow-changes")


def test_too_many_searches_are_refused_with_the_time_to_wait(user: ConsoleUser) -> None:
    def is_refused() -> bool:
        user.open("/messages", topic=TOPIC)
        return "Too many requests" in user.text()

    eventually(is_refused)
    user.sees(r"wait \d+ s")
    status = "performance.getEntriesByType('navigation')[0].responseStatus"
    assert user.browser.run(status) == 429
    # Other pages have no limit.
    user.open("/topics", q=TOPIC)
    user.sees(TOPIC)


def test_idle_connections_and_half_sent_requests_shut_no_browser_out(user: ConsoleUser) -> None:
    address = urlsplit(user.url)
    assert address.hostname is not None
    assert address.port is not None
    with contextlib.ExitStack() as held:
        for number in range(IDLE):
            opened = socket.create_connection((address.hostname, address.port), 60)
            held.enter_context(opened)
            if number % 2:
                # The console may have closed it to make room for another one.
                with contextlib.suppress(OSError):
                    opened.sendall(b"GET /topics HTTP/1.1\r\nHost:")
        user.open("/topics", q=TOPIC)
        user.sees(TOPIC)
        user.open("/groups")
        user.sees("Groups")
