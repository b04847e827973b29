"""Requests to the process of a run, and its answer to an address that is in use."""

from __future__ import annotations

from pathlib import Path

from barnabas.spark.metrics import QueryMetrics, QueryMetricsServer
from barnabas.spark.pipelines.project import NewProject, create_project, load_project
from barnabas.spark.pipelines.runs import RunRequest, StartedRun


def test_a_request_is_the_same_after_its_way_as_json() -> None:
    request = RunRequest("p.yml", refresh=("a", "b"), every_s=1.5, metrics=("127.0.0.1", 9309))
    for each in (request, RunRequest("p.yml")):
        assert RunRequest.from_json(each.to_json()) == each


def test_a_metrics_address_that_is_in_use_ends_the_run_before_spark_starts(tmp_path: Path) -> None:
    create_project(tmp_path / "p", NewProject("t", "127.0.0.1:1", "u"))
    project = load_project(tmp_path / "p")
    with QueryMetricsServer(QueryMetrics(), "127.0.0.1", 0) as other:
        port = int(other.address.rpartition(":")[2])
        request = RunRequest(str(project.spec), metrics=("127.0.0.1", port))
        with StartedRun(project, request) as started:
            *_, problem, ended = started.events()
            assert started.wait() == 1
    assert problem["text"].startswith(f"metrics cannot be served at 127.0.0.1:{port}: ")
    assert ended == {"event": "ended", "result": "failed"}
