"""The console's pages of topics, groups and writing in Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from barnabas.client.facade import Client
from barnabas.serializers import AvroSerializer, SchemaRegistry
from conformance.console_process import HOSTILE, LONG, Running, running_console
from conformance.page_checks import poor_layout, violations
from selection import nightly_unless
from tools.chromium import IS_INSTALLED, Chromium
from unit.serializers.registry_server import RegistryServer

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]

TOPIC = "browser-topics"
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
PAGES = (
    "/topics/new", f"/topics/new?like={TOPIC}", f"/topic/edit?name={TOPIC}", f"/topic?name={TOPIC}",
    "/reassignments/plan?plan=1", f"/reassignments/plan?plan=1&topics={LONG}", "/partitions",
    f"/group?id={quote(HOSTILE)}", f"/resend?topic={TOPIC}&at=0-0&at=0-1",
    f"/produce?topic={TOPIC}", f"/produce?topic={quote(HOSTILE)}",
)  # fmt: skip
# Chromium reports that these pages name what does not exist, or an impossible name.
REFUSED = {
    f"/reassignments/plan?plan=1&topics={LONG}": "404",
    f"/produce?topic={quote(HOSTILE)}": "400",
}


@pytest.fixture(scope="module")
def running(clients_bootstrap: str) -> Iterator[Running]:
    with RegistryServer() as registry, Client(clients_bootstrap) as client:
        client.create_topic(TOPIC, 1, 1, {"retention.ms": "86400000"})
        with client.producer() as producer:
            hostile = HOSTILE.encode()
            for _ in range(2):
                producer.send(TOPIC, hostile, hostile, headers=[(HOSTILE, hostile)]).result()
        client.commit_offsets(HOSTILE, {(TOPIC, 0): 0})
        AvroSerializer(SchemaRegistry(registry.url), SCHEMA).serialize(TOPIC, {"n": 0})
        with running_console(clients_bootstrap, "--registry", registry.url) as found:
            yield found


@pytest.fixture(scope="module")
def browser(running: Running) -> Iterator[Chromium]:
    """A browser that is logged in."""
    with Chromium() as made:
        running.log_in(made, "/topics")
        yield made


@pytest.mark.parametrize("width", nightly_unless((400).__eq__, [400, 1280]))
def test_forms_keep_their_layout_and_have_no_faults(
    running: Running, browser: Chromium, width: int
) -> None:
    found = {}
    for page in PAGES:
        browser.shape(width, 900, dark=width == 400)
        browser.open(running.url + page)
        # Details show all their fields.
        browser.run("document.querySelectorAll('details').forEach((each) => each.open = true)")
        status = f"status of {REFUSED.get(page)} "
        errors = [each for each in browser.page_errors() if status not in each]
        found[page] = errors + poor_layout(browser) + violations(browser)
        assert browser.run("window.hacked") is None, page
    assert {page: each for page, each in found.items() if each} == {}


def test_a_record_is_checked_by_its_schema_while_it_is_typed(
    running: Running, browser: Chromium
) -> None:
    browser.shape(1280, 900, dark=False)
    browser.open(f"{running.url}/produce?topic={TOPIC}")
    form = "document.querySelector('form[data-check-at]')"
    state = "document.getElementById('check-value')"
    browser.run(f"{form}.elements.value_kind.value = 'schema'")
    browser.run(f"{form}.elements.value.focus()")
    browser.type('{"n": "no"}')
    browser.wait(f"{state}.className === 'bad'")
    assert "does not fit version 1 of browser-topics-value" in browser.run(f"{state}.textContent")
    value = json.dumps('{"n": 1}')
    browser.run(f"{form}.elements.value.value = {value}")
    browser.run(f"{form}.dispatchEvent(new Event('input'))")
    browser.wait(f"{state}.textContent === 'valid, 6 B'")
    assert browser.page_errors() == []


def test_a_chosen_file_is_written_and_kept_when_the_form_is_refused(
    running: Running, browser: Chromium
) -> None:
    browser.open(f"{running.url}/produce?topic={TOPIC}")
    browser.run("window.form = document.querySelector('form[data-check-at]')")
    browser.run("form.elements.value_kind.value = 'file'")
    browser.run("form.elements.partition.value = 'x'")
    browser.run("""
        (() => {
          const files = new DataTransfer();
          files.items.add(new File([new Uint8Array([0, 13, 10, 255])], "bytes.bin"));
          form.elements.value_file.files = files.files;
        })()
    """)
    send(browser)
    problem = "document.getElementById('problem-partition').textContent"
    assert browser.run(problem) == "Partition must be a whole number, not 'x'"
    assert browser.run("document.activeElement.name") == "partition"
    browser.run("document.activeElement.value = '0'")
    # Enter in a field writes; it does not make an example.
    browser.events.clear()
    browser.press("Enter")
    browser.wait_for_load()
    assert browser.run("document.querySelector('.notice.ok').textContent").startswith("wrote to")
    assert "00 0d 0a ff" in browser.run("document.querySelector('main').textContent")


def send(browser: Chromium) -> None:
    browser.events.clear()
    browser.run("form.querySelector('button:not([type=button], [name=example])').click()")
    browser.wait_for_load()


def test_checked_messages_of_a_search_are_sent_again(running: Running, browser: Chromium) -> None:
    browser.open(f"{running.url}/messages?topic={TOPIC}&from=beginning")
    browser.wait("document.querySelectorAll('#messages input[name=at]').length >= 2")
    browser.run("document.querySelector('#messages input[value=\"0-1\"]').click()")
    browser.run("window.form = document.getElementById('chosen')")
    send(browser)
    assert "Send 1 message of" in browser.run("document.querySelector('h1').textContent")
    browser.run("window.form = document.querySelector('form[action=\"/resend\"]')")
    browser.run(f"form.elements.target.value = '{TOPIC}'")
    send(browser)
    assert "the source itself" in browser.run("document.querySelector('.notice.warn').textContent")
    browser.run("window.form = document.querySelector('form.fields[action=\"/resend\"]')")
    send(browser)
    assert browser.run("document.querySelector('.notice.ok').textContent").startswith("sent 1")
    assert browser.run("window.hacked") is None
    assert browser.page_errors() == []
