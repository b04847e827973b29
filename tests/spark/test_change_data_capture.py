"""The example of change data capture runs: PostgreSQL, Debezium on Kafka Connect, Spark, Delta."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from connect import WORKER, fetch_jars
from jvm.maven import need, one_maven
from postgres import find_binaries
from processes import ExampleError

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "change-data-capture"
PAGE = ROOT / "docs" / "change-data-capture.md"
TIMEOUT_S = 560


def need_postgres() -> None:
    """Skip the test if PostgreSQL is missing; in CI, fail."""
    try:
        find_binaries()
    except ExampleError:
        need("initdb")


def blocks(kind: str) -> list[str]:
    """The blocks of a kind in the page."""
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.nightly
@pytest.mark.spark
def test_delta_tables_equal_the_source_after_kills_and_schema_changes(tmp_path: Path) -> None:
    need("java", "mvn")
    need_postgres()
    with one_maven():
        fetch_jars()
    words = [sys.executable, str(EXAMPLE / "run.py"), "--output", str(tmp_path / "output")]
    done = subprocess.run(
        [*words, "--seconds", "15", "--days", "2"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "kill -9 of Kafka Connect" in done.stdout
    assert "kill -9 of the Spark job" in done.stdout
    for kind in ("rename_large_airline", "load_airfields", "replace_airports", "2 change_schema"):
        assert kind in done.stdout
    # The page shows the last lines, with other numbers.
    lines = [re.sub(r"^ *[\d.]+ s  ", "", line) for line in done.stdout.splitlines()[-3:]]
    [shown] = blocks("text")
    assert [without_numbers(line) for line in lines] == [
        without_numbers(line) for line in shown.splitlines()
    ]


def without_numbers(line: str) -> str:
    return re.sub(r"\d[\d,.]*", "N", line)


def test_the_page_names_the_files_and_settings_of_the_example() -> None:
    [picture] = blocks("mermaid")
    files = {path.name for path in EXAMPLE.glob("*.py")}
    assert set(re.findall(r"\w+\.py", picture)) <= files
    assert f"{len(files)} short Python files" in PAGE.read_text()
    [settings] = blocks("properties")
    shown = dict(line.split("=", 1) for line in settings.splitlines())
    assert shown.items() <= WORKER.items()
