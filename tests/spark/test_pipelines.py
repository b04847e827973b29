"""`barnabas pipeline`: from a new project to restarts, refusals and kills, with Spark."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from deltalake import DeltaTable

from barnabas.cli.load.metrics import fetch_metrics
from barnabas.spark.iceberg.catalog import TableName, open_table
from barnabas.spark.pipelines.checkpoints import read_checkpoints
from barnabas.spark.pipelines.project import load_project
from documents.blocks import sections_of
from spark.pipeline_shell import Pipeline, events, kill, written
from waiting import eventually

pytestmark = pytest.mark.spark

Fill = Callable[[str, int, list[tuple[bytes | None, bytes | None]]], None]

# Of the killed pipeline: so many batches of a flow at least.
RECORDS, PER_BATCH = 600, 40
KILLS = 5


@pytest.fixture
def pipeline(tmp_path: Path, bootstrap: str, topic: str) -> Pipeline:
    """A new project that reads the topic."""
    made = Pipeline(tmp_path / "flights")
    done = made.command("init", "flights", "--topic", topic, "--bootstrap", bootstrap)
    assert done.returncode == 0, done.stderr
    return made


def keys(rows: list[dict[str, Any]]) -> Counter[tuple[str, int, int]]:
    return Counter((row["key"], row["partition"], row["offset"]) for row in rows)


@pytest.mark.nightly
def test_a_new_project_runs_goes_on_and_refuses_what_does_not_fit(
    pipeline: Pipeline, bootstrap: str, fill: Fill, topic: str
) -> None:
    fill(topic, 0, [(b"a", b"one"), (b"b", b"two")])
    fill(topic, 2, [(b"c", None)])
    first = pipeline.run()
    assert keys(pipeline.rows("records")) == {("a", 0, 0): 1, ("b", 0, 1): 1}
    (batch,) = (each for each in first if each["event"] == "progress" and each["lag"])
    assert (batch["rows_read"], batch["rows_written"]) == (3, 2)
    assert batch["lag"] == {topic: 0}
    assert batch["expectations"] == {"has a value": {"otherwise": "drop", "rows": 3, "failed": 1}}

    fill(topic, 1, [(b"d", b"three")])
    assert sum(part["lag"] for part in pipeline.status()["records"]["partitions"]) == 1
    with pipeline.running() as again:
        assert sum(part["lag"] for part in pipeline.status()["records"]["partitions"]) == 0
        found = fetch_metrics(pipeline.metrics_address)
        assert found["barnabas_query_rows_written_total"] == {
            (("query", "out/to_topic"),): 1,
            (("query", "records"),): 1,
        }
        assert found["barnabas_query_starts_total"][("query", "records"),] >= 1
        assert set(found["barnabas_query_failures_total"].values()) == {0}
        place = (("partition", "1"), ("query", "records"), ("topic", topic))
        assert found["barnabas_query_lag"][place] == 0
        # The definitions of a running pipeline change: its next round reads them.
        pipeline.replace(f'"subscribe", "{topic}"', '"subscribe", "elsewhere"')
        last = list(events(again))
    assert again.returncode == 1, pipeline.log()
    change, missing = [each for each in last if each["event"] == "change"]
    assert f"no longer reads {topic}, but elsewhere" in change["problem"]
    assert change["remedy"].startswith(f"read {topic} again, or all")
    assert "no such topic" in missing["problem"]
    assert last[-1] == {"event": "ended", "result": "refused"}

    expected = {("a", 0, 0): 1, ("b", 0, 1): 1, ("d", 1, 0): 1}
    assert keys(pipeline.rows("records")) == expected
    assert written(bootstrap, f"{topic}-out") == {b"ONE": 1, b"TWO": 1, b"THREE": 1}


@pytest.mark.nightly
def test_a_reset_fills_a_table_again_and_state_reaches_the_status(
    pipeline: Pipeline, bootstrap: str, fill: Fill, topic: str
) -> None:
    pipeline.replace(
        "@dp.materialized_view",
        "@dp.table\ndef hours():\n"
        '    source = spark.readStream.format("barnabas").options(**BROKERS)\n'
        f'    source = source.option("subscribe", "{topic}")\n'
        '    source = source.option("startingOffsets", "earliest")\n'
        '    timed = source.load().withWatermark("timestamp", "1 minute")\n'
        '    return timed.groupBy(f.window("timestamp", "1 hour")).count()\n\n\n'
        "@dp.materialized_view",
    )
    fill(topic, 0, [(b"a", b"one"), (b"b", b"two")])
    pipeline.run()
    hours = pipeline.status()["hours"]
    assert (hours["operators"], hours["state_rows"]) == (["stateStoreSave"], 1)

    done = pipeline.command("reset", "records", "--execute", "--master", "local[2]")
    assert done.returncode == 0, done.stderr + pipeline.log()
    assert "repeated: out gets all rows of records again, from flow to_topic" in done.stdout
    assert keys(pipeline.rows("records")) == {("a", 0, 0): 1, ("b", 0, 1): 1}
    pipeline.run()
    assert written(bootstrap, f"{topic}-out") == {b"ONE": 2, b"TWO": 2}

    # Another window has the same columns, so only its definition tells that it does not fit.
    pipeline.replace('"1 hour"', '"2 hours"')
    refused = pipeline.command("run", "--check", "--master", "local[2]")
    assert refused.returncode == 1
    assert "the keys, windows or functions of its aggregation changed" in refused.stderr


@pytest.mark.nightly
def test_expectations_and_tables_as_on_the_page(
    pipeline: Pipeline, fill: Fill, topic: str, tmp_path: Path
) -> None:
    expectations, quarantine, lake = (
        block.text
        for section in sections_of("docs/pipelines.md")
        for block in section.blocks
        if block.checked_by == "tests/spark/test_pipelines.py"
    )
    pipeline.replace(
        '    return expect(rows, "has a value", f.col("value").isNotNull(), otherwise="drop")\n',
        f"{indent(expectations, '    ')}    return rows\n\n\n{quarantine}\n\n"
        + lake.replace("/data/flights", f"{tmp_path}/lake").replace("/data/", f"{tmp_path}/"),
    )
    long = b"l" * 1000
    fill(topic, 0, [(b"a", b"one"), (None, b"two"), (b"c", long)])
    counts = {}
    for event in pipeline.run():
        counts |= event.get("expectations", {})
    assert counts == {
        "has a key": {"otherwise": "drop", "rows": 3, "failed": 1},
        "is fresh": {"otherwise": "keep", "rows": 2, "failed": 2},
        "is valid": {"otherwise": "fail", "rows": 2, "failed": 0},
        "is short": {"otherwise": "quarantine", "rows": 2, "failed": 1},
    }
    assert keys(pipeline.rows("short_records")) == {("a", 0, 0): 1}
    [row] = pipeline.rows("long_records")
    assert (row["key"], row["value"], row["quarantine_reason"]) == ("c", long.decode(), "is short")
    fill(topic, 0, [(b"b", b"")])
    with pipeline.start() as failing:
        problems = [each["text"] for each in events(failing) if each["event"] == "problem"]
    assert failing.returncode == 1
    assert any("does not meet the expectation 'is valid'" in each for each in problems), problems
    good = {("a", 0, 0): 1, ("c", 0, 2): 1}
    assert keys(pipeline.rows("records")) == good
    assert keys(DeltaTable(tmp_path / "lake").to_pyarrow_table().to_pylist()) == good
    assert len(pipeline.rows("long_records")) == 1
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db"}
    iceberg = open_table(TableName("lake.flights", properties=properties)).scan().to_arrow()
    assert keys(iceberg.to_pylist()) == good


def committed_batches(pipeline: Pipeline) -> int:
    checkpoints = read_checkpoints(load_project(pipeline.directory))
    return sum(each.committed_batch + 1 for each in checkpoints)


def run_until_killed(pipeline: Pipeline, chance: random.Random) -> None:
    """Kill a run between two points of its work: the command, all of it, or Java alone."""
    before = committed_batches(pipeline)
    more = chance.choice((0, 1, 2, 5))
    with pipeline.start() as started:
        java = pipeline.storage / "_barnabas" / "run.lock"
        eventually(lambda: started.poll() is not None or _is_of(java, started), pipeline.log, 300)
        eventually(
            lambda: started.poll() is not None or committed_batches(pipeline) >= before + more,
            pipeline.log,
            300,
        )
        try:
            # Into the middle of a batch.
            started.wait(chance.uniform(0, 1))
        except subprocess.TimeoutExpired:
            process_id = int(java.read_text())
            match chance.choice(("command", "all", "java")):
                case "command":
                    kill(started.pid)
                case "java":
                    kill(process_id)
                case "all":
                    kill(started.pid)
                    os.killpg(os.getpgid(process_id), signal.SIGKILL)


def _is_of(lock: Path, started: subprocess.Popen[str]) -> bool:
    """Whether the lock's file names a Java process below the started command."""
    text = lock.read_text() if lock.exists() else ""
    if not text.isdigit():
        return False
    try:
        parent = Path(f"/proc/{text}/stat").read_text().rsplit(")", 1)[1].split()[1]
        return Path(f"/proc/{parent}/stat").read_text().rsplit(")", 1)[1].split()[1] == str(
            started.pid
        )
    except FileNotFoundError:
        return False


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_random_points_lose_and_double_nothing(
    pipeline: Pipeline, bootstrap: str, fill: Fill, topic: str, seed: int
) -> None:
    pipeline.replace(
        '.option("startingOffsets"',
        f'.option("maxOffsetsPerTrigger", {PER_BATCH})\n        .option("startingOffsets"',
    )
    names = [f"{number}" for number in range(RECORDS)]
    for partition in range(3):
        fill(topic, partition, [(n.encode(), n.encode()) for n in names[partition::3]])
    chance = random.Random(seed)
    for _ in range(KILLS):
        run_until_killed(pipeline, chance)
    pipeline.run()
    assert Counter(row["key"] for row in pipeline.rows("records")) == Counter(names)
    assert written(bootstrap, f"{topic}-out") == Counter(name.encode() for name in names)
    assert all(part["lag"] == 0 for part in pipeline.status()["records"]["partitions"])
