"""The console's page of pipelines, from files that a run left."""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.client.facade import Client
from barnabas.console.settings import ConsoleSettings
from barnabas.spark.metrics import QueryMetrics, QueryMetricsServer
from barnabas.spark.pipelines.project import NewProject, create_project, load_project
from barnabas.testing.broker_process import BrokerProcess
from console_in_process import NO_BROKER, ConsoleInProcess, table_rows
from unit.spark.pipelines.stored_checkpoints import write_run
from unit.spark.query_batches import batch
from waiting import eventually


def test_the_lag_is_that_behind_the_topics_of_the_cluster(tmp_path: Path) -> None:
    directory = tmp_path / "flights"
    with BrokerProcess() as broker:
        create_project(directory, NewProject("t", broker.bootstrap, "t-out"))
        with Client(broker.bootstrap) as client:
            client.create_topic("t", 1, 1)
            with client.producer() as producer:
                producer.send_batch("t", [(None, b"a", [], None), (None, b"b", [], None)], 0)
        write_run(load_project(directory), "t")
        settings = ConsoleSettings(broker.bootstrap, {}, pipelines=(str(directory),))
        with ConsoleInProcess(settings) as console:
            answer = console.get("/pipelines")
    assert answer.status == 200, answer.text
    assert table_rows(answer.text)["records"] == {
        "Flow": "records",
        "Batch": "0",
        "Rows read in it": "4",
        "Rows written": "1",
        "Rows/s": "2.5",
        "Duration": "1.6 s",
        "Lag": "t 1",
        "Watermark": "–",
        "Rows of state": "7",
        "Expectations not met": "has a key: 3 of 4",
    }
    assert re.search(r"flights\s*<span class=\"tag\">completed</span>", answer.text)
    assert 'href="/pipelines"' in answer.text


def test_a_missing_project_is_named_on_the_page(tmp_path: Path) -> None:
    with BrokerProcess() as broker:
        settings = ConsoleSettings(broker.bootstrap, {}, pipelines=(str(tmp_path / "gone"),))
        with ConsoleInProcess(settings) as console:
            answer = console.get("/pipelines")
    assert "there is no spark-pipeline.yml" in answer.text


def test_the_queries_of_a_driver_have_rates_durations_and_lag() -> None:
    metrics = QueryMetrics()
    metrics.on_started("copy")
    metrics.on_progress("copy", batch())
    with BrokerProcess() as broker, QueryMetricsServer(metrics, "127.0.0.1", 0) as driver:
        addresses = (driver.address, "127.0.0.1:1")
        settings = ConsoleSettings(broker.bootstrap, {}, queries=addresses, interval=0.5)
        with ConsoleInProcess(settings) as console:
            eventually(lambda: driver.address in console.get("/pipelines").text, "a sample")
            page = console.get("/pipelines").text
    assert table_rows(page)["copy"] == {
        "Query": "copy",
        "State": "running",
        "Rows/s": "50",
        "Duration": "2.0 s",
        "Lag": "t 10",
        "Rows of state": "6",
        "Failures": "0",
    }
    assert "The driver does not respond: check" in page
    assert 'href="/pipelines"' in page


def test_without_pipelines_no_page_links_to_them() -> None:
    with ConsoleInProcess(ConsoleSettings("127.0.0.1:1", NO_BROKER)) as console:
        assert 'href="/pipelines"' not in console.get("/produce").text
