"""The web console in Chromium: keyboard, log-in, live updates, narrow and dark windows."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from urllib.parse import quote

import pytest

from barnabas.client.facade import Client
from barnabas.serializers import AvroSerializer, SchemaRegistry
from barnabas.serializers.schema import encode_header
from barnabas.spark.pipelines.project import NewProject, create_project
from conformance.console_process import HOSTILE, LONG, Running, running_console
from conformance.page_checks import (
    PAGE_BYTES_MAX,
    REQUESTS_MAX,
    linked_pages,
    poor_layout,
    sizes,
    violations,
)
from selection import nightly_unless
from server_in_thread import ServerInThread
from tools.chromium import IS_INSTALLED, Chromium
from unit.serializers.registry_server import RegistryServer

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]

TOPIC = "browser-records"
SCHEMAS = "browser-schemas"
PAGES = (
    "/", "/topics", f"/topic?name={TOPIC}", f"/messages?topic={TOPIC}",
    f"/message?topic={TOPIC}&partition=0&offset=0", f"/topic?name={LONG}",
    f"/message/versions?topic={TOPIC}&partition=0&offset=0",
    f"/message/difference?topic={TOPIC}&partition=0&offset=1&other_partition=0&other_offset=0",
    f"/messages?topic={LONG}", f"/messages?topic={SCHEMAS}",
    f"/messages?topic={TOPIC}&filter=value.no_member_has_this_name+%3E+1",
    "/groups", f"/group?id={quote(HOSTILE)}", f"/group?id={LONG}",
    "/broker?id=1", "/pipelines", "/reassignments", "/security", "/why", "/doctor",
    f"/why?target={LONG}&kind=topic&ask=1", f"/produce?topic={TOPIC}", "/login",
)  # fmt: skip


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


@pytest.fixture(scope="module")
def running(
    clients_bootstrap: str, registry: RegistryServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    with Client(clients_bootstrap) as client:
        client.create_topic(TOPIC, 1, 1)
        client.create_topic(LONG, 1, 1)
        client.create_topic(SCHEMAS, 1, 1)
        with client.producer() as producer:
            hostile = HOSTILE.encode()
            producer.send(TOPIC, hostile, hostile, headers=[(HOSTILE, hostile)]).result()
            for value in hostile_values(registry):
                producer.send(SCHEMAS, value).result()
        client.commit_offsets(HOSTILE, {(TOPIC, 0): 0})
        client.commit_offsets(LONG, {(LONG, 0): 0})
    project = tmp_path_factory.mktemp("pipelines") / "flights"
    create_project(project, NewProject(TOPIC, clients_bootstrap, f"{TOPIC}-out"))
    options = ["--interval", "1", "--registry", registry.url]
    options += ["--pipeline", str(project), "--pipeline", str(project.parent / HOSTILE)]
    with running_console(clients_bootstrap, *options) as found:
        yield found


def hostile_values(registry: RegistryServer) -> Iterator[bytes]:
    """Yield values with hostile texts, and of schemas whose errors contain such texts."""
    schemas = SchemaRegistry(registry.url)
    value = AvroSerializer(schemas, '"string"').serialize(SCHEMAS, HOSTILE)
    assert value is not None
    yield value
    for text, kind in (
        (json.dumps(HOSTILE), "AVRO"),
        (json.dumps({"$ref": HOSTILE}), "JSON"),
        (json.dumps({"const": HOSTILE}), "JSON"),
        (HOSTILE, "PROTOBUF"),
        (HOSTILE, HOSTILE),
    ):
        yield encode_header(registry.add(text, kind)) + b"1"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as made:
        yield made


@pytest.fixture(scope="module")
def pages(running: Running, browser: Chromium) -> list[str]:
    """Those with hostile names, and all that are linked at the top of a page."""
    found, shown = list(PAGES), []
    for page in found:
        browser.open(running.url + page)
        found += [each for each in linked_pages(browser) if each not in found]
        # Some pages are for administrators only, and some need a real registry.
        status = browser.run("performance.getEntriesByType('navigation')[0].responseStatus")
        if status == 200:
            shown.append(page)
    return shown


@pytest.mark.parametrize("width", nightly_unless((400).__eq__, [400, 1280]))
def test_no_page_breaks_its_policy_or_has_texts_that_overlap_or_are_cut(
    running: Running, browser: Chromium, pages: list[str], width: int
) -> None:
    browser.shape(width, 900, dark=False)
    found = {}
    for page in pages:
        browser.open(running.url + page)
        assert browser.run("document.querySelector('h1') !== null"), page
        assert browser.run("window.hacked") is None, page
        found[page] = browser.page_errors() + poor_layout(browser)
    assert {page: each for page, each in found.items() if each} == {}


@pytest.mark.nightly
def test_axe_finds_nothing_on_any_page_in_light_and_dark_windows(
    running: Running, browser: Chromium, pages: list[str]
) -> None:
    found = {}
    for page in pages:
        browser.open(running.url + page)
        for dark in (False, True):
            browser.shape(1280, 900, dark=dark)
            found[page, dark] = violations(browser)
    assert {page: each for page, each in found.items() if each} == {}


@pytest.mark.nightly
def test_a_page_is_small_and_needs_few_requests(
    running: Running, browser: Chromium, pages: list[str]
) -> None:
    for page in pages:
        browser.open(running.url + page)
        found = sizes(browser)
        assert found["requests"] <= REQUESTS_MAX, page
        assert found["bytes"] <= PAGE_BYTES_MAX, page


def test_the_colors_follow_the_scheme_of_the_user(running: Running, browser: Chromium) -> None:
    shown = []
    for dark in (False, True):
        browser.shape(1280, 800, dark=dark)
        browser.open(running.url + "/topics")
        shown.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert shown == ["rgb(245, 247, 247)", "rgb(15, 20, 19)"]


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
    assert browser.run("document.activeElement.name") == "q"
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_every_control_is_reached_by_tab_with_a_visible_focus(
    running: Running, browser: Chromium
) -> None:
    browser.shape(400, 800, dark=False)
    active = "document.activeElement"
    for page in (f"/topic?name={TOPIC}", f"/messages?topic={TOPIC}", "/security", "/why"):
        browser.open(running.url + page)
        controls = "a, button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']"
        visible = f"[...document.querySelectorAll({controls!r})].filter((e) => e.checkVisibility())"
        wanted = browser.run(f"{visible}.length")
        browser.run("window.reached = new Set()")
        for _ in range(wanted):
            browser.press("Tab")
            # The link that skips the header has no outline: it is invisible until then.
            style = f"getComputedStyle({active})"
            shown = f"{style}.outlineStyle === 'solid' || {active}.classList.contains('skip')"
            assert browser.run(shown), (page, browser.run(f"{active}.outerHTML"))
            browser.run(f"window.reached.add({active}).size")
        assert browser.run("window.reached.size") == wanted, page


def test_a_refresh_keeps_the_focus_and_what_the_user_selected(
    running: Running, browser: Chromium
) -> None:
    browser.shape(400, 800, dark=False)
    browser.open(f"{running.url}/topic?name={TOPIC}")
    browser.run("document.querySelector('#live-topic td a').focus()")
    browser.run("document.querySelector('#live-topic').firstElementChild.isOld = true")
    browser.wait("!document.querySelector('#live-topic').firstElementChild.isOld")
    assert browser.run("document.activeElement.matches('#live-topic td a')")
    browser.run("getSelection().selectAllChildren(document.querySelector('#live-topic caption'))")
    browser.run("window.selected = getSelection().anchorNode")
    with Client(running.bootstrap) as client, client.producer() as producer:
        producer.send(TOPIC, b"more").result()
    # Two rounds of the script have passed when the page was requested twice.
    asked = "performance.getEntriesByType('resource').filter((e) => e.initiatorType === 'fetch')"
    before = browser.run(f"{asked}.length")
    browser.wait(f"{asked}.length >= {before} + 2")
    assert browser.run("window.selected.isConnected && String(getSelection()) === 'Partitions'")


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
    running.log_in(browser, f"/produce?topic={TOPIC}")
    assert browser.run("document.cookie") == ""
    browser.run("document.querySelector('textarea[name=value]').focus()")
    browser.type('{"written": "by hand"}')
    browser.events.clear()
    browser.run("document.querySelector('main form .actions button').click()")
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


def test_offsets_move_after_a_page_has_shown_them(running: Running, browser: Chromium) -> None:
    page = f"/group?id={quote(HOSTILE)}"
    running.log_in(browser, page)
    browser.run("window.form = document.querySelector('form[action=\"/group/reset\"]')")
    browser.run("form.parentElement.open = true, form.elements.to.value = 'latest'")
    browser.events.clear()
    browser.run("form.querySelector('button').click()")
    browser.wait_for_load()
    rows = (
        "[...document.querySelectorAll('main tbody :is(th, td)')].map((each) => each.textContent)"
    )
    partition, before, after = browser.run(rows)[:3]
    assert (partition, before) == (f"{TOPIC}-0", "0")
    assert violations(browser) == []
    assert browser.run("window.hacked") is None
    with Client(running.bootstrap) as client:
        assert client.committed(HOSTILE)[TOPIC, 0].offset == 0
        browser.events.clear()
        browser.run("document.querySelector('main form button.danger').click()")
        browser.wait_for_load()
        assert browser.run("document.querySelector('.notice.ok').textContent").startswith("moved ")
        assert client.committed(HOSTILE)[TOPIC, 0].offset == int(after)
        client.commit_offsets(HOSTILE, {(TOPIC, 0): 0})
    assert browser.page_errors() == []


def test_texts_of_schemas_and_their_errors_are_only_text(
    running: Running, browser: Chromium
) -> None:
    browser.open(f"{running.url}/messages?topic={SCHEMAS}&from=beginning")
    texts = "[...document.querySelectorAll('#messages tr')].map((each) => each.textContent)"
    first, *others = browser.run(texts)
    assert HOSTILE in first
    assert len(others) == 5
    assert sum("<script>" in each for each in others) >= 3
    assert browser.run("document.querySelector('main img, main script')") is None
    assert browser.run("window.hacked") is None
    assert browser.page_errors() == []


def test_another_site_can_neither_change_nor_load_anything(
    running: Running, browser: Chromium
) -> None:
    running.log_in(browser, "/")
    target = running.url
    page = f"""
        <form method="post" action="{target}/topics/create" target="answer">
          <input name="name" value="browser-foreign"><input name="csrf" value="">
          <input name="here" value="/"></form>
        <iframe name="answer"></iframe>
        <iframe src="{target}/topics"></iframe>
        <script>
          document.forms[0].submit();
          window.read = fetch("{target}/topics").then(() => "read", () => "refused");
          window.sent = fetch("{target}/topics/create", {{
            method: "POST", mode: "no-cors", credentials: "include", body: new URLSearchParams(
              {{ name: "browser-foreign", csrf: "", here: "/" }}) }}).then(() => 1, () => 1);
          window.shown = new Promise((done) => {{
            const image = new Image();
            image.onload = () => done("shown");
            image.onerror = () => done("refused");
            image.src = "{target}/static/icon.svg";
          }});
        </script>
    """
    with foreign_site(page) as url:
        browser.open(url)
        assert browser.run("window.read") == "refused"
        assert browser.run("window.shown") == "refused"
        assert browser.run("window.sent") == 1
    browser.open(f"{running.url}/topics?q=browser-foreign")
    # The session is still there: it would have allowed the change.
    assert browser.run("document.querySelector('.who button').textContent") == "Log out"
    assert browser.run("document.querySelector('#live-topics table')") is None


@contextlib.contextmanager
def foreign_site(page: str) -> Iterator[str]:
    """Serve a page of another site: `localhost` and 127.0.0.1 differ for a browser."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ServerInThread(Handler) as server:
        yield server.url.replace("127.0.0.1", "localhost") + "/"
