"""The declared pipeline of the example over the first days of its year, with a kill and without."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from barnabas import Client, Producer
from barnabas.console.settings import ConsoleSettings
from console_in_process import ConsoleInProcess, table_rows
from examples.flights import events, produce
from examples.flights.processes import DemoError
from examples.flights_declared import check, run
from spark.pipeline_shell import Pipeline

pytestmark = pytest.mark.spark

DAYS_END = pd.Timestamp("2013-01-04T00:00Z")
# Four days before the closing events.
CLOSED, CLOSED_ON_PAGE = "2014-01-06T00:00:00Z", "2014-01-06 00:00:00.000Z"
PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"


@pytest.fixture(autouse=True)
def some_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set of the first days only."""
    flights, weather = events.flights(), events.weather()
    monkeypatch.setattr(events, "flights", lambda: flights[flights["known"] < DAYS_END])
    monkeypatch.setattr(events, "weather", lambda: weather[weather["observed"] < DAYS_END])


@pytest.fixture
def topics(client: Client) -> Iterator[None]:
    for name, partitions in run.TOPICS.items():
        client.create_topic(name, partitions, 1, run.KEPT)
    yield
    client.delete_topics(run.TOPICS)


@pytest.fixture
def pipeline(
    topics: None, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Pipeline:
    """The example's project."""
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", bootstrap)
    made = Pipeline(tmp_path / "flights")
    assert made.command("init", "flights", "--topic", "flights").returncode == 0
    shutil.copyfile(run.DEFINITIONS, made.definitions)
    return made


@pytest.mark.nightly
def test_all_tables_and_the_topic_are_those_of_the_data_set(
    pipeline: Pipeline, bootstrap: str
) -> None:
    with Producer(bootstrap) as producer:
        produce.send(producer, list(produce.in_order()))
    found = pipeline.run()
    assert check.problems(pipeline.directory, bootstrap) == []
    assert len(check.expected_alerts(check.expected_departures())) > 0
    counts = {}
    for event in found:
        for name, each in event.get("expectations", {}).items():
            counts[name] = counts.get(name, 0) + each["failed"]
    without_plane = check.expected_departures()["tailnum"].isna().sum()
    assert counts == {
        "is a departure": len(events.AIRPORTS),
        "has a plane": without_plane,
        "has a visibility": len(events.AIRPORTS),
    }
    assert without_plane > 0

    hours = pipeline.status()["hours"]
    assert (hours["watermark"], hours["state_rows"]) == (CLOSED, len(events.AIRPORTS))
    settings = ConsoleSettings(bootstrap, {}, pipelines=(str(pipeline.directory),))
    with ConsoleInProcess(settings) as console:
        row = table_rows(console.get("/pipelines").text)["lake_hours/hours"]
    assert row["Lag"] == "flights 0"
    assert row["Watermark"] == CLOSED_ON_PAGE
    assert row["Rows of state"] == str(len(events.AIRPORTS))


@pytest.mark.nightly
def test_the_run_with_a_kill_passes_its_check(tmp_path: Path) -> None:
    status = None
    while status is None:
        example = run.Run(tmp_path / "out", seconds=10)
        try:
            status = run.judge(example)
        except DemoError:
            # Spark waits ten seconds for a Python process (`late_workers`).
            log = (example.project / "storage" / "_barnabas" / "run.log").read_text()
            assert "failed to connect back" in log, log[-4000:]
    assert status == 0
    assert example.kills == 1


def test_the_check_finds_a_row_that_is_missing_changed_or_twice() -> None:
    expected = check.expected_departures()
    assert check.difference("t", expected.sample(frac=1, random_state=1), expected) is None
    problem = "t: {} rows are missing, {} are not expected".format
    assert check.difference("t", expected[1:], expected) == problem(1, 0)
    assert check.difference("t", pd.concat([expected, expected[:1]]), expected) == problem(0, 1)
    changed = expected.assign(dep_delay=expected["dep_delay"].where(expected.index > 0, 1000))
    assert check.difference("t", changed, expected) == problem(1, 1)
    assert "columns" in (check.difference("t", expected[["time"]], expected) or "")


def test_the_picture_names_all_datasets() -> None:
    (picture,) = re.findall(r"```mermaid\n(.*?)```", PAGE.read_text(), re.DOTALL)
    text = run.DEFINITIONS.read_text()
    names = re.findall(r"@dp\.(?:table|materialized_view)\ndef (\w+)", text)
    names += re.findall(r'create_sink\("(\w+)"', text)
    assert len(names) == 6
    assert [name for name in names if name not in picture] == []
