"""The console's pages of Connect, schemas and the cluster in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.facade import Client
from barnabas.serializers.registry import SchemaRegistry
from barnabas.serializers.schema import Schema, SchemaReference, SchemaType
from barnabas.testing.registry_process import RegistryProcess
from conformance.console_process import HOSTILE, LONG, Running, running_console
from conformance.console_user import ConsoleUser
from conformance.page_checks import (
    PAGE_BYTES_MAX,
    REQUESTS_MAX,
    poor_layout,
    sizes,
    violations,
)
from tools.chromium import IS_INSTALLED, Chromium
from unit.console.connect_server import SINK, ConnectServer, task

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]

SUBJECT, USED = "browser-pages-value", "browser-pages-used"
OF_HOSTILE = f"cluster=local&name={quote(HOSTILE)}"
PAGES = (
    "/connect", f"/connect/connector?{OF_HOSTILE}", f"/connect/connector?cluster=local&name={LONG}",
    f"/connect/form?{OF_HOSTILE}", "/connect/form?cluster=local",
    f"/connect/form?cluster=local&plugin={SINK}", "/schemas",
    f"/schema?subject={SUBJECT}&version=2&against=1", f"/schema?subject={USED}",
    f"/schemas/draft?subject={SUBJECT}", "/quorum", "/log-dirs", "/features", "/transactions",
    f"/transactions/producers?topic={LONG}", "/transactions/hanging", "/quotas", "/telemetry",
    "/tokens", f"/security/rights?principal={quote(HOSTILE)}", "/links", "/link?name=browsed",
)  # fmt: skip


@pytest.fixture(scope="module")
def connect() -> Iterator[ConnectServer]:
    with ConnectServer() as server:
        trace = f"{HOSTILE}{LONG}\n\tat {LONG}"
        server.add(HOSTILE, tasks=[task(0), task(1, trace)], table=HOSTILE, mode=HOSTILE, x=LONG)
        server.add(LONG, state="PAUSED", table=LONG)
        server.offsets[LONG] = [{"partition": {LONG: HOSTILE}, "offset": {"x": LONG}}]
        yield server


@pytest.fixture(scope="module")
def other_connect() -> Iterator[ConnectServer]:
    with ConnectServer() as server:
        server.add("copies", table="copies")
        yield server


@pytest.fixture(scope="module")
def registry(
    clients_bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SchemaRegistry]:
    words = ["--topic", "_browser_schemas"]
    directory = tmp_path_factory.mktemp("registry")
    with RegistryProcess(clients_bootstrap, directory, words) as process:
        found = SchemaRegistry(process.url)
        doc = "<img src=x onerror=window.hacked=1>"
        used = f'{{"type":"record","name":"Used","doc":"{doc}","fields":[]}}'
        found.register(USED, Schema(used))
        reference = SchemaReference("Used", USED, 1)
        for more in ("", f',{{"name":"b","type":"string","default":"{LONG}"}}'):
            text = f'{{"type":"record","name":"A","fields":[{{"name":"a","type":"Used"}}{more}]}}'
            found.register(SUBJECT, Schema(text, SchemaType.AVRO, (reference,)))
        yield found


@pytest.fixture(scope="module")
def running(
    clients_bootstrap: str,
    registry: SchemaRegistry,
    connect: ConnectServer,
    other_connect: ConnectServer,
) -> Iterator[Running]:
    with Client(clients_bootstrap) as client:
        if LONG not in client.topics():
            client.create_topic(LONG, 1, 1)
        client.admin.alter_quotas((("user", HOSTILE),), {"producer_byte_rate": 1e6})
        # A link whose source does not exist, with a mirror that is not created.
        client.admin.alter_configs(
            ConfigResource(ResourceType.BROKER, ""),
            {
                "barnabas.link.browsed.state": "paused",
                "barnabas.link.browsed.bootstrap.servers": f"{HOSTILE}:9092",
                "barnabas.link.browsed.topics": LONG,
                f"barnabas.link.browsed.topic.absent-{LONG[:200]}": f"stopped 00 {HOSTILE}",
            },
        )
    options = ["--registry", registry.url, "--interval", "1"]
    options += ["--connect", f"local={connect.url}", "--connect", f"other={other_connect.url}"]
    with running_console(clients_bootstrap, *options) as found:
        yield found


@pytest.fixture(scope="module")
def browser(running: Running) -> Iterator[Chromium]:
    """A browser whose user is logged in, so that pages have their forms."""
    with Chromium() as made:
        running.log_in(made, "/connect")
        yield made


def test_the_pages_keep_the_policy_fit_into_windows_and_are_small(
    running: Running, browser: Chromium
) -> None:
    found = {}
    for page in PAGES:
        for width in (400, 1280):
            browser.shape(width, 900, dark=False)
            browser.open(running.url + page)
            assert browser.run("document.querySelector('h1') !== null"), page
            browser.run("document.querySelectorAll('details').forEach((each) => each.open = true)")
            assert browser.run("window.hacked") is None, page
            found[page, width] = browser.page_errors() + poor_layout(browser)
        size = sizes(browser)
        assert size["requests"] <= REQUESTS_MAX, page
        assert size["bytes"] <= PAGE_BYTES_MAX, page
    assert {page: each for page, each in found.items() if each} == {}


def test_axe_finds_nothing_in_light_and_dark_windows(running: Running, browser: Chromium) -> None:
    found = {}
    for page in PAGES:
        browser.open(running.url + page)
        browser.run("document.querySelectorAll('details').forEach((each) => each.open = true)")
        for dark in (False, True):
            browser.shape(1280, 900, dark=dark)
            found[page, dark] = violations(browser)
    assert {page: each for page, each in found.items() if each} == {}


def test_a_person_mends_the_errors_of_a_form_and_creates_a_connector(
    running: Running, browser: Chromium, connect: ConnectServer
) -> None:
    def press(button: str) -> None:
        browser.run(f"document.querySelector({button!r}).click()")
        browser.wait("document.readyState === 'complete'")

    browser.shape(1280, 900, dark=False)
    browser.open(f"{running.url}/connect/form?cluster=local&plugin={SINK}")
    browser.run("document.querySelector('#connector-name').value = 'typed'")
    press("form.configs button")
    browser.wait("document.querySelector('[aria-invalid]') !== null")
    label = "document.getElementById('field-table').getAttribute('aria-describedby')"
    assert browser.run(f"document.getElementById({label}).textContent") == "a table is missing"
    assert browser.run("document.querySelector('#connector-name').value") == "typed"
    browser.run("document.getElementById('field-table').value = 'orders'")
    press("form.configs button")
    browser.wait("document.querySelector('button.danger') !== null")
    press("button.danger")
    browser.wait("location.pathname === '/connect/connector'")
    assert connect.connectors["typed"]["table"] == "orders"


def test_connectors_of_several_clusters_show_the_errors_of_tasks_and_are_restarted(
    running: Running, browser: Chromium, connect: ConnectServer
) -> None:
    connect.add("failing", tasks=[task(0), task(1, "no such table\n\tat org.example")], table="a")
    browser.shape(1280, 900, dark=False)
    user = ConsoleUser(browser, running.url)
    user.open("/connect")
    assert user.row("copies")["Connect cluster"] == "other"
    failing = user.row("failing")
    assert failing["Connect cluster"] == "local"
    assert failing["Tasks that run"] == "1 of 2, 1 failed"
    user.press("failing")
    assert user.row("1")["Error"].startswith("no such table")
    user.press("Restart what failed")
    user.sees("restarted")
    assert any("/connectors/failing/restart" in each for each in connect.requests)


def test_schemas_show_versions_differences_and_levels_and_a_draft_is_checked(
    running: Running, browser: Chromium
) -> None:
    browser.shape(1280, 900, dark=False)
    user = ConsoleUser(browser, running.url)
    user.open("/schemas")
    assert user.row(SUBJECT)["Latest version"] == "2"
    user.press(SUBJECT)
    user.sees("Compatibility", f"{USED} version 1")
    user.press("with version 2")
    changed = [each["Text"] for each in user.rows() if each.get("Change") == "+"]
    assert any('"name": "b"' in each for each in changed)
    user.open("/schema", subject=USED)
    user.sees(f"Referenced by {SUBJECT} version 1")
    user.press("Draft of a new version")
    user.type("Schema", '{"type": "string"}')
    user.press("Check the compatibility")
    user.sees("cannot be registered")
    user.open("/schema", subject=USED)
    part = user.part("Change compatibility")
    part.choose("Compatibility", "FULL")
    part.form_of("Compatibility").press("Set")
    user.sees("Compatibility FULL")
    user.open("/schemas/draft", subject="browser-pages-registered")
    user.type("Schema", '{"type": "string"}')
    user.press("Register")
    user.sees("the first version")
    user.press("Register it")
    user.sees("registered browser-pages-registered version 1")
