"""Errors name the line of the user's file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.spark.pipelines.explained_errors import Place, place_in_traceback, place_of_name

DEFINITIONS = '''\
"""Reads vaule."""
from pyspark import pipelines as dp


@dp.table
def records():
    # vaule is not meant.
    return topic().selectExpr(
        "CAST(key AS STRING) AS key",
        "CAST(vaule AS STRING) AS value",
    )


@dp.table
def others():
    rows = topic()
    text = f"""
      upper(vaule)
    """
    return rows.select(rows.kye, text, "total")


def topic():
    return spark.table("source").select("helped")
'''


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "transformations" / "datasets.py"
    found.parent.mkdir()
    found.write_text(DEFINITIONS)
    return found


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        (5, "vaule", "10"),
        (14, "vaule", "18"),
        (14, "kye", "20"),
        (5, "helped", "24"),
        (5, "tot", "5"),
        (14, None, "14"),
    ],
    ids=["own text", "text of lines", "attribute", "helper", "part of a word", "no name"],
)
def test_the_line_is_that_of_the_name(
    path: Path, tmp_path: Path, line: int, name: str | None, expected: str
) -> None:
    found = place_of_name(Place(path, line), name, tmp_path)
    assert found == f"transformations/datasets.py:{expected}"


def test_all_lines_of_a_definition_with_the_name_are_given(path: Path, tmp_path: Path) -> None:
    path.write_text('@dp.table\ndef t():\n    r = s("a")\n    return r.where("a")\n')
    assert place_of_name(Place(path, 1), "a", tmp_path) == "transformations/datasets.py:3,4"


def test_lines_of_sql_files_are_found(tmp_path: Path) -> None:
    path = tmp_path / "late.sql"
    path.write_text("CREATE STREAMING TABLE late AS\nSELECT *\nFROM STREAM records\nWHERE vaule\n")
    assert place_of_name(Place(path, 1), "vaule", tmp_path) == "late.sql:4"


def test_a_file_that_is_gone_leaves_the_definition(tmp_path: Path) -> None:
    assert place_of_name(Place(tmp_path / "gone.py", 7), "vaule", tmp_path) == "gone.py:7"


def test_an_error_of_python_has_the_last_line_of_the_project(tmp_path: Path) -> None:
    path = tmp_path / "datasets.py"
    path.write_text("import os\n\n\nos.fspath(3)\n")
    with pytest.raises(TypeError) as caught:
        exec(compile(path.read_text(), str(path), "exec"), {})
    assert place_in_traceback(caught.value, tmp_path) == "datasets.py:4"


def test_an_error_outside_of_the_project_has_no_line(tmp_path: Path) -> None:
    with pytest.raises(TypeError) as caught:
        os.fspath(3)  # type: ignore[call-overload] - the error is wanted
    assert place_in_traceback(caught.value, tmp_path) is None


def test_a_syntax_error_has_its_own_line(tmp_path: Path) -> None:
    path = tmp_path / "datasets.py"
    with pytest.raises(SyntaxError) as caught:
        compile("x = 1\n)\n", str(path), "exec")
    assert place_in_traceback(caught.value, tmp_path) == "datasets.py:2"
