"""The console's pages of Kafka Connect, with a worker of Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.console.connect.addresses import connect_settings
from barnabas.console.settings import ConsoleSettings
from barnabas.testing.broker_process import BrokerProcess
from console_in_process import ConsoleInProcess, table_rows
from jvm.connect_worker import BROKER_SETTINGS, FILE_CONNECTORS, Worker
from jvm.kafka_process import KafkaProcess
from jvm.reference import broker_under_test
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.nightly

SINK = FILE_CONNECTORS.format("Sink")
SECONDS = 120
LINES = {"cluster": "local", "name": "lines"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess | KafkaProcess]:
    with broker_under_test(tmp_path / "broker", BROKER_SETTINGS) as process:
        yield process


def test_a_connector_lives_from_its_form_to_its_deletion(
    broker: BrokerProcess | KafkaProcess, tmp_path: Path
) -> None:
    source, copy = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("a\nb\nc\n")
    worker = Worker("worker", broker.bootstrap, tmp_path)
    with worker.process:
        worker.await_started()
        worker.connect("source", "Source", file=str(source), topic="lines")
        settings = ConsoleSettings(
            broker.bootstrap, {}, allow_changes=True, interval=3600.0, timeout=SECONDS,
            connect=connect_settings([f"local=http://{worker.address}"], {}),
        )  # fmt: skip
        with ConsoleInProcess(settings) as console:
            console.log_in()
            create(console, copy)
            fail_and_restart(console, tmp_path)
            move_offsets_and_delete(console, copy)


def shown(console: ConsoleInProcess, name: str) -> dict[str, str]:
    """Return the row of a connector in the list."""
    return table_rows(console.get("/connect").text).get(name, {})


def create(console: ConsoleInProcess, copy: Path) -> None:
    """Create a sink by the form, which shows the errors of the plug-in first."""
    form = console.get("/connect/form", cluster="local", plugin=SINK).text
    assert 'name="config.topics"' in form
    fields = {"cluster": "local", "plugin": SINK, "is_new": 1, "name": "lines"}
    answer = console.post("/connect/save", csrf=console.token, **fields)
    assert answer.status == 200
    assert "Must configure one of topics or topics.regex" in answer.text
    good = {**fields, "config.topics": "lines", "config.file": str(copy)}
    assert "Create the connector lines?" in console.preview("/connect/save", **good).text
    eventually(lambda: "created" in console.change("/connect/save", **good, confirmed=1).text)
    eventually_equal(lambda: copy.exists() and copy.read_text(), "a\nb\nc\n")
    eventually_equal(lambda: shown(console, "lines").get("Tasks that run"), "1 of 1")
    page = eventually(lambda: committed(console))
    assert '<a href="/topic?name=lines">' in page
    assert shown(console, "source")["Type"] == "source"


def committed(console: ConsoleInProcess) -> str:
    """Return the page of the sink after its first commit; "" before."""
    page = console.get("/connect/connector", **LINES).text
    return page if "kafka_offset&#34;: 3" in page else ""


def fail_and_restart(console: ConsoleInProcess, directory: Path) -> None:
    """Let a task fail, and restart what failed after its cause is gone."""
    missing = directory / "missing"
    fields = {"cluster": "local", "plugin": SINK, "is_new": 1, "name": "broken"}
    config = {"config.topics": "lines", "config.file": str(missing / "out.txt")}
    eventually(
        lambda: (
            "created" in console.change("/connect/save", **fields, **config, confirmed=1).text
            or shown(console, "broken")
        )
    )
    eventually(lambda: "1 failed" in shown(console, "broken").get("Tasks that run", ""))
    of_broken = {"cluster": "local", "name": "broken"}
    page = console.get("/connect/connector", **of_broken).text
    assert "<summary>org.apache.kafka.connect.errors.ConnectException" in page
    missing.mkdir()
    console.change("/connect/restart", **of_broken, failed=1)
    eventually_equal(lambda: shown(console, "broken").get("State"), "running")


def move_offsets_and_delete(console: ConsoleInProcess, copy: Path) -> None:
    """Move the offsets of the stopped sink back, so that it copies two lines again."""
    console.change("/connect/state", **LINES, verb="stop")
    eventually_equal(lambda: shown(console, "lines").get("State"), "stopped")
    offsets = (
        '[{"partition": {"kafka_topic": "lines", "kafka_partition": 0}, '
        '"offset": {"kafka_offset": 1}}]'
    )
    path = "/connect/offsets/alter"
    assert "Move the offsets of lines?" in console.preview(path, **LINES, offsets=offsets).text
    # Until all members have left the group of the sink, Connect refuses the change.
    eventually(
        lambda: "altered" in console.change(path, **LINES, offsets=offsets, confirmed=1).text
    )
    console.change("/connect/state", **LINES, verb="resume")
    eventually_equal(copy.read_text, "a\nb\nc\nb\nc\n")
    assert (
        "Delete the connector" in console.preview("/connect/delete", **LINES, confirm="lines").text
    )
    console.change("/connect/delete", **LINES, confirm="lines", confirmed=1)
    eventually(lambda: not shown(console, "lines"))
