"""The console's pages of Kafka Connect in Chromium, with a worker of Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.testing.broker_process import BrokerProcess
from conformance.console_process import running_console
from conformance.console_user import ConsoleUser
from jvm.connect_worker import BROKER_SETTINGS, FILE_CONNECTORS, Worker
from tools.chromium import IS_INSTALLED, Chromium
from waiting import eventually_equal

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]


def test_a_user_creates_pauses_and_deletes_a_connector_by_forms(tmp_path: Path) -> None:
    source, copy = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("a\nb\n")
    with BrokerProcess(tmp_path / "broker", BROKER_SETTINGS) as broker:
        worker = Worker("worker", broker.bootstrap, tmp_path)
        options = ["--connect", f"local=http://{worker.address}", "--interval", "1"]
        with (
            worker.process,
            running_console(broker.bootstrap, *options) as running,
            Chromium() as browser,
        ):
            worker.await_started()
            worker.connect("source", "Source", file=str(source), topic="lines")
            running.log_in(browser, "/connect")
            user = ConsoleUser(browser, running.url)
            create(user, copy)
            eventually_equal(lambda: copy.exists() and copy.read_text(), "a\nb\n")
            pause_and_delete(user)


def create(user: ConsoleUser, copy: Path) -> None:
    """Create a sink by the form, which shows the errors of the plug-in at its fields."""
    assert user.row("source")
    user.open("/connect/form", cluster="local", plugin=FILE_CONNECTORS.format("Sink"))
    user.type("Name", "lines")
    user.press("Create")
    user.sees("Must configure one of topics or topics.regex")
    user.type("topics", "lines")
    user.type("file", str(copy))
    user.press("Create")
    user.sees(r"Create the connector lines\?")
    user.press("Create")
    user.sees("created")


def pause_and_delete(user: ConsoleUser) -> None:
    user.open("/connect")
    assert user.row("lines")
    user.press("lines")
    user.press("Pause")
    user.sees("paused")
    user.press("Resume")
    user.sees("running")
    part = user.part("Delete")
    part.type("The name of the connector", "lines")
    part.press("Delete")
    user.sees(r"Delete the connector lines\?")
    user.press("Delete")
    user.sees("deleted")
