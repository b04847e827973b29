"""The console's pages of links: what they show, and the changes of an operator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer

from barnabas import Client
from barnabas.console.settings import ConsoleSettings
from barnabas.testing.broker_process import BROKER_SETTINGS, BrokerProcess
from conformance.console_process import HOSTILE, running_console
from conformance.console_user import ConsoleUser
from conformance.linked_clusters import LINK, SECONDS, Linked, commit_offset
from console_in_process import ConsoleInProcess, table_rows
from tools.chromium import IS_INSTALLED, Chromium
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.conformance

SETTINGS = {**BROKER_SETTINGS, "offsets.topic.num.partitions": "2"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("source"), SETTINGS) as process:
        yield process


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("target"), SETTINGS) as process:
        yield process


@pytest.fixture
def linked(source: BrokerProcess, target: BrokerProcess, tmp_path: Path) -> Iterator[Linked]:
    made = Linked(source.bootstrap, target.bootstrap, tmp_path)
    yield made
    made.shell.run("links", "delete", LINK, "--force", "--yes")


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


@pytest.fixture(scope="module")
def console(target: BrokerProcess, audit: Path) -> Iterator[ConsoleInProcess]:
    settings = ConsoleSettings(
        target.bootstrap,
        {},
        allow_changes=True,
        interval=3600.0,
        timeout=SECONDS,
        audit_log=str(audit),
    )
    with ConsoleInProcess(settings) as running:
        running.log_in()
        yield running


def mirror(linked: Linked, topic: str, groups: str = "") -> None:
    """Create a topic with records in the source, and mirror it."""
    linked.create_topic(topic)
    linked.produce(topic, [f"record-{number}" for number in range(5)])
    linked.create_link(topic, groups)
    linked.await_mirrored(topic)
    eventually(lambda: linked.described()["lag"] == 0)


def states(linked: Linked, topic: str) -> tuple[str, str]:
    """Return the states of the link and of the mirror."""
    return linked.described()["state"], linked.state(topic)["state"]


def test_the_navigation_and_the_pages_show_a_link_with_its_mirrors(
    linked: Linked, console: ConsoleInProcess
) -> None:
    mirror(linked, "pages")

    eventually(lambda: 'href="/links"' in console.get("/topics").text)
    row = table_rows(console.get("/links").text)[LINK]
    assert (row["State"], row["Mirrors"], row["Lag"]) == ("active", "1", "0")
    assert row["Source"] == linked.source
    page = console.get("/link", name=LINK).text
    shown = table_rows(page)["pages"]
    assert (shown["State"], shown["Partitions"], shown["Lag"]) == ("active", "1", "0")
    assert console.get("/link", name="absent").status == 404
    hostile = console.get("/link", name=HOSTILE)
    assert hostile.status == 404
    assert HOSTILE not in hostile.text


def test_a_link_and_a_mirror_are_paused_and_resumed_after_previews(
    linked: Linked, console: ConsoleInProcess, audit: Path
) -> None:
    mirror(linked, "paused")
    fields = {"name": LINK, "state": "paused"}
    row = table_rows(console.preview("/link/state", **fields).text)[LINK]
    assert (row["Now"], row["After"]) == ("active", "paused")
    assert states(linked, "paused")[0] == "active"
    assert f"paused link {LINK}" in console.change("/link/state", **fields, confirmed=1).text
    eventually_equal(lambda: states(linked, "paused")[0], "paused")
    resumed = console.change("/link/state", name=LINK, state="active", confirmed=1)
    assert f"resumed link {LINK}" in resumed.text
    console.change("/link/state", name=LINK, topic="paused", state="paused", confirmed=1)
    eventually_equal(lambda: states(linked, "paused"), ("active", "paused"))

    wrong = console.change("/link/state", name=LINK, topic="absent", state="paused")
    assert "does not mirror absent" in wrong.text
    odd = console.change("/link/state", name=LINK, topic="paused", state="promoted")
    assert "choose one of active, paused" in odd.text
    entries = [json.loads(line) for line in audit.read_text().splitlines()]
    done = [each for each in entries if each["result"] == "done"]
    assert any(f"paused link {LINK}" in json.dumps(each) for each in done)


def test_a_mirror_is_promoted_only_without_lag_or_by_choice(
    linked: Linked, console: ConsoleInProcess
) -> None:
    mirror(linked, "promoted")
    linked.shell.ok("links", "pause", LINK)
    eventually(lambda: linked.described()["lag"] is None)
    refused = console.change("/link/promote", name=LINK)
    assert "the lag is not known" in refused.text
    shown = console.preview("/link/promote", name=LINK, force=1).text
    assert table_rows(shown)["promoted"]["Missing records"] == "not known"
    linked.shell.ok("links", "resume", LINK)
    eventually(lambda: linked.described()["lag"] == 0)
    assert "began to promote 1 topic of link" in promoted(console, confirmed=1)
    eventually_equal(lambda: states(linked, "promoted")[1], "promoted")
    assert "has no mirrors to promote" in console.change("/link/promote", name=LINK).text


def promoted(console: ConsoleInProcess, **fields: object) -> str:
    """Promote the mirrors of the link when the page finds nothing missing; return its text."""
    return eventually(
        lambda: (
            text
            if "began to promote"
            in (text := console.change("/link/promote", name=LINK, **fields).text)
            else ""
        )
    )


def test_a_mirror_is_promoted_only_with_the_offsets_of_groups_or_by_choice(
    linked: Linked, console: ConsoleInProcess
) -> None:
    mirror(linked, "grouped", "readers")
    # A group with members in this cluster gets no offsets from the source.
    member = Consumer({"bootstrap.servers": linked.target, "group.id": "readers"})
    member.subscribe(["grouped"])
    eventually(lambda: member.poll(1) is not None or bool(member.assignment()))
    commit_offset(linked.source, "readers", "grouped", 3)

    def refusal() -> str:
        return console.change("/link/promote", name=LINK, confirmed=1).text

    eventually(lambda: "those of 1 group are missing: readers" in refusal())
    assert states(linked, "grouped")[1] == "active"
    assert "check &#34;Without missing records&#34; to promote what is here" in refusal()
    shown = console.preview("/link/promote", name=LINK, force=1).text
    assert "stay as of their last copies" in shown
    done = promoted(console, force=1, confirmed=1)
    assert "group offsets: those of 1 group are missing: readers" in done
    member.close()
    eventually_equal(lambda: states(linked, "grouped")[1], "promoted")


def test_the_offsets_of_groups_are_copied_once_more_before_a_promotion(
    linked: Linked, console: ConsoleInProcess
) -> None:
    mirror(linked, "copied", "followers")
    commit_offset(linked.source, "followers", "copied", 3)
    promoted(console, confirmed=1)
    with Client(linked.target) as client:
        assert client.committed("followers", [("copied", 0)])["copied", 0].offset == 3


def test_a_link_is_deleted_with_its_name_typed(linked: Linked, console: ConsoleInProcess) -> None:
    mirror(linked, "deleted")
    assert "to confirm, type" in console.change("/link/delete", name=LINK, confirm="x").text
    left = console.change("/link/delete", name=LINK, confirm=LINK)
    assert "has 1 mirror: promote them first" in left.text
    promoted(console, confirmed=1)
    eventually_equal(lambda: states(linked, "deleted")[1], "promoted")
    fields = {"name": LINK, "confirm": LINK}
    assert "deleted" in table_rows(console.preview("/link/delete", **fields).text)
    assert "deleted link" in console.change("/link/delete", **fields, confirmed=1).text

    eventually_equal(lambda: linked.shell.json("links", "list"), [])
    assert "No links" in console.get("/links").text


@pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)")
def test_a_user_pauses_promotes_and_deletes_a_link_in_a_browser(linked: Linked) -> None:
    mirror(linked, "browsed")
    with running_console(linked.target) as running, Chromium() as browser:
        running.log_in(browser, "/links")
        user = ConsoleUser(browser, running.url)
        user.press(LINK)
        assert user.row("browsed")["State"] == "active"
        user.press("Pause the link")
        user.sees("Pause link")
        user.press("Pause it")
        user.sees(f"paused link {LINK}")
        user.press("Resume the link")
        user.press("Resume it")
        user.sees(f"resumed link {LINK}")
        eventually(lambda: linked.described()["lag"] == 0)
        part = user.part("Promote mirrors")
        part.press("Promote")
        user.press("Promote")
        user.sees("began to promote 1 topic")
        eventually_equal(lambda: states(linked, "browsed")[1], "promoted")
        part = user.part("Delete the link")
        part.type("Type the name of the link", LINK)
        part.press("Delete")
        user.press("Delete it")
        user.sees(f"deleted link {LINK}")
    eventually_equal(lambda: linked.shell.json("links", "list"), [])
