"""What `barnabas pipeline run` shows of the events of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from barnabas.cli.spark.pipeline import pipeline
from barnabas.cli.spark.pipeline_runs import RunTotals, lag_text, render, rows_text, shown
from barnabas.spark.pipelines.project import NewProject, create_project

RECORDS, OUT = "spark_catalog.default.records/records", "out/to_topic"


def flow(key: str, state: str, error: str | None = None) -> dict[str, Any]:
    return {"event": "flow", "flow": key, "state": state, "error": error}


def batch(key: str, read: int, written: int | None, **more: Any) -> dict[str, Any]:
    plain = {
        "lag": {}, "watermark": None, "state_rows": None, "late_rows": 0, "expectations": {},
    }  # fmt: skip
    rows = {"rows_read": read, "rows_written": written}
    return {"event": "progress", "flow": key, "batch": 4, **rows, **plain, **more}


def lines_of(capsys: pytest.CaptureFixture[str], *events: dict[str, Any]) -> list[str]:
    totals = RunTotals()
    with shown(totals, as_json=False) as show:
        for event in events:
            totals.take(event)
            show(event)
    captured = capsys.readouterr()
    return (captured.out + captured.err).splitlines()


def test_the_lag_names_the_topics() -> None:
    assert lag_text({}) is None
    assert lag_text({"t": 4}) == "t 4"
    assert lag_text({"t": 4, "u": None}) == "t 4, u -"


@pytest.mark.parametrize(
    ("read", "written", "text"),
    [(4, 4, "4 rows written"), (4, 3, "3 rows written of 4 read"), (4, None, "4 rows read")],
)
def test_rows_are_those_written_and_the_read_ones_are_named(
    read: int, written: int | None, text: str
) -> None:
    assert rows_text(read, written) == text


def test_the_total_of_a_flow_whose_written_rows_are_unknown_has_the_read_ones() -> None:
    totals = RunTotals()
    for written in (4, None, 6):
        totals.take(batch(RECORDS, 6, written))
    assert (totals.flows[RECORDS].rows_read, totals.flows[RECORDS].rows_written) == (18, None)


def test_a_batch_is_a_line_with_all_that_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    expectations = {"a key": {"otherwise": "drop", "rows": 9, "failed": 2}}
    (line,) = lines_of(
        capsys,
        batch(
            RECORDS,
            9,
            7,
            lag={"t": 3},
            watermark="2026-11-27T05:57:23.501Z",
            state_rows=7,
            late_rows=1,
            expectations=expectations,
        ),
    )
    assert line == (
        "records: batch 4, 7 rows written of 9 read, lag t 3, watermark 2026-11-27T05:57:23.501Z, "
        "state 7 rows, 1 rows too late, 2 of 9 rows without 'a key' (drop)"
    )


def test_only_states_of_flows_that_run_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    found = lines_of(
        capsys, flow(RECORDS, "queued"), flow(RECORDS, "running"), flow(OUT, "failed", "no broker")
    )
    assert found == ["records: running", "out/to_topic: failed: no broker"]


def test_the_address_of_metrics_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    event = {"event": "metrics", "address": "127.0.0.1:9309"}
    assert lines_of(capsys, event) == ["metrics 127.0.0.1:9309"]


def test_a_metrics_address_without_port_is_wrong_usage(tmp_path: Path) -> None:
    create_project(tmp_path / "p", NewProject("t", "127.0.0.1:1", "u"))
    words = ["run", "--project", str(tmp_path / "p"), "--metrics", "localhost"]
    done = CliRunner().invoke(pipeline, words)
    assert done.exit_code == 2
    assert "--metrics localhost: write HOST:PORT" in done.output


def test_a_refused_change_has_its_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    change = {
        "event": "change", "flow": "records", "problem": "it reads u", "remedy": "reset records",
        "refused": True,
    }  # fmt: skip
    assert lines_of(capsys, change) == ["refused: records: it reads u", "  → reset records"]


def test_the_table_sums_batches_and_leaves_out_empty_columns() -> None:
    totals = RunTotals()
    for event in (
        {"event": "starting"},
        flow(RECORDS, "running"),
        batch(RECORDS, 5, 4, lag={"t": 6}),
        batch(RECORDS, 6, 6, lag={"t": 0}),
        flow(RECORDS, "completed"),
        {"event": "ended", "result": "completed"},
    ):
        totals.take(event)
    console = Console(width=80)
    with console.capture() as captured:
        console.print(render(totals))
    head, columns, row = (line.split() for line in captured.get().splitlines())
    assert head == ["barnabas", "pipeline", "completed"]
    assert columns == ["flow", "state", "batches", "read", "written", "lag"]
    assert row == ["records", "completed", "2", "11", "10", "t", "0"]
