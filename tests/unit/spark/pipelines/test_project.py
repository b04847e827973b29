"""New projects, and specifications that cannot be run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from barnabas.spark.pipelines.project import NewProject, ProjectError, create_project, load_project

WANTED = NewProject("departures", "127.0.0.1:9092", "departures-out")


def test_a_new_project_is_valid(tmp_path: Path) -> None:
    create_project(tmp_path / "flights", WANTED)
    project = load_project(tmp_path / "flights" / "transformations")
    assert project.name == "flights"
    assert project.storage == tmp_path / "flights" / "storage"
    definitions = (tmp_path / "flights" / "transformations" / "datasets.py").read_text()
    functions = [
        node.name for node in ast.parse(definitions).body if isinstance(node, ast.FunctionDef)
    ]
    assert functions == ["records", "records_per_key", "to_topic"]
    assert '"departures"' in definitions
    assert '"departures-out"' in definitions


def test_a_path_that_spark_would_write_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="has a space"):
        create_project(tmp_path / "my files" / "flights", WANTED)
    (tmp_path / "spark-pipeline.yml").write_text("name: p\nstorage: file:///my files/storage")
    with pytest.raises(ProjectError, match="has a space"):
        load_project(tmp_path)


def test_an_existing_project_is_not_overwritten(tmp_path: Path) -> None:
    create_project(tmp_path / "flights", WANTED)
    with pytest.raises(ProjectError, match="exists already"):
        create_project(tmp_path / "flights", WANTED)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("2fast", WANTED),
        ('a"b', WANTED),
        ("flights", NewProject('x"y', "b:1", "z")),
        ("flights", NewProject("..", "b:1", "z")),
        ("flights", NewProject("x", 'b:1"', "z")),
        ("flights", NewProject("x", "b:1", "x")),
    ],
)
def test_names_that_would_not_work_are_refused(
    tmp_path: Path, name: str, wanted: NewProject
) -> None:
    with pytest.raises(ProjectError):
        create_project(tmp_path / name, wanted)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "cannot be read"),
        ("", "has no keys"),
        ("name: p", "lacks the key storage"),
        ("name: p\nstorage: s3://b/p", "local directory"),
        ("name: p\nstorage: storage", "not absolute"),
        ("name: p\nstorage: /p\nconfiguration: {a: 1}", 'write a: "1" with quotes'),
    ],
)
def test_a_wrong_specification_is_explained(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "spark-pipeline.yml").write_text(text)
    with pytest.raises(ProjectError, match=problem):
        load_project(tmp_path)


def test_two_specifications_are_refused(tmp_path: Path) -> None:
    for name in ("spark-pipeline.yml", "spark-pipeline.yaml"):
        (tmp_path / name).write_text("name: p\nstorage: /p")
    with pytest.raises(ProjectError, match="remove one of them"):
        load_project(tmp_path)


def test_a_directory_without_project_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="barnabas pipeline init"):
        load_project(tmp_path)


def test_names_are_qualified_like_the_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "spark-pipeline.yml").write_text("name: p\nstorage: /p\ndatabase: sales")
    project = load_project(tmp_path)
    assert project.qualified("records") == "spark_catalog.sales.records"
    assert project.qualified("other.`records`") == "spark_catalog.other.records"
    assert project.qualified("c.other.records") == "c.other.records"
