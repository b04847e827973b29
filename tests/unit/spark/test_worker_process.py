"""Python workers of Spark: they start cheaply, and show the message of an error first."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from barnabas.client.errors import UnknownTopicError
from barnabas.spark.errors import OptionError
from barnabas.spark.session import prepare_local_workers
from barnabas.spark.worker_process import freeze_imports, hide_traceback, message_first

ARCHIVES = "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10.9.9-src.zip"
JAR = "/spark/jars/spark-core_2.13-4.2.1.jar"


def prepared(**given: str) -> dict[str, str]:
    environment = dict(given)
    prepare_local_workers(environment)
    return environment


def path_of_worker(path: str | None) -> str:
    """Return the PYTHONPATH of a worker that Spark starts with the given one."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | prepared()
    if path is not None:
        environment["PYTHONPATH"] = path
    program = "import os, sys; print(sys.executable, os.environ.get('PYTHONPATH'))"
    return subprocess.check_output(
        [environment["PYSPARK_PYTHON"], "-c", program], env=environment, text=True
    ).strip()


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        (f"{ARCHIVES}:{JAR}", "None"),
        (f"{ARCHIVES}:{JAR}:/my modules:/spark.zip", "/my modules:/spark.zip"),
        ("/*", "/*"),
        (None, "None"),
    ],
)
def test_a_worker_imports_no_package_from_an_archive_of_spark(path: str | None, kept: str) -> None:
    assert path_of_worker(path) == f"{sys.executable} {kept}"


def test_a_python_that_the_user_chose_for_the_workers_is_kept() -> None:
    environment = prepared(PYSPARK_PYTHON="mine", PYSPARK_DRIVER_PYTHON=sys.executable)
    assert environment["PYSPARK_PYTHON"] == "mine"
    assert environment["PYSPARK_DRIVER_PYTHON"].endswith("python_home/bin/python3")


def test_workers_of_another_spark_keep_its_archives(tmp_path: Path) -> None:
    given = {"SPARK_HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    assert prepared(**given) == given


@pytest.fixture
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_modules_are_frozen_once_until_more_of_them_are_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    freeze_imports()
    frozen, objects = gc.get_freeze_count(), [[index] for index in range(1000)]
    freeze_imports()
    assert gc.get_freeze_count() < frozen + len(objects)
    monkeypatch.setitem(sys.modules, "a_new_module", ModuleType("a_new_module"))
    freeze_imports()
    assert gc.get_freeze_count() >= frozen + len(objects)


# Each worker process would spend more time on these modules than on a small task.
DEAR = "pandas", "barnabas.client.admin.admin"
IMPORTS = """
import sys
import tests.unit.spark.topics.test_rows as rows
import barnabas.spark.topics.planner, barnabas.spark.topics.reader, barnabas.spark.topics.task
rows.test_columns_are_exactly_those_that_spark_expects()
print([name for name in sys.argv[1:] if name in sys.modules])
"""


def test_a_task_imports_neither_pandas_nor_the_admin_calls() -> None:
    found = subprocess.check_output([sys.executable, "-c", IMPORTS, *DEAR], text=True)
    assert found.strip() == "[]"


HIDDEN = {"SPARK_BUFFER_SIZE": "65536", "SPARK_HIDE_TRACEBACK": "1"}


@pytest.mark.parametrize("error", [OptionError("topic is empty"), UnknownTopicError("t")])
def test_only_the_message_of_our_errors_is_shown(error: Exception) -> None:
    environment = {"SPARK_BUFFER_SIZE": "65536"}
    hide_traceback(error, environment)
    assert environment == HIDDEN


@pytest.mark.parametrize(
    ("error", "environment"),
    [
        (TypeError("a bug"), {"SPARK_BUFFER_SIZE": "65536"}),
        (OptionError("outside of a worker of Spark"), {}),
    ],
)
def test_other_errors_and_processes_keep_their_tracebacks(
    error: Exception, environment: dict[str, str]
) -> None:
    before = dict(environment)
    hide_traceback(error, environment)
    assert environment == before


@message_first
class Reader:
    def read(self, fails: bool) -> Iterator[int]:
        yield 1
        if fails:
            raise OptionError("late")

    def partitions(self, fails: bool) -> int:
        if fails:
            raise OptionError("early")
        return 2


@pytest.mark.parametrize("name", ["read", "partitions"])
def test_methods_and_iterators_hide_the_tracebacks_of_their_errors(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Exception] = []
    monkeypatch.setattr("barnabas.spark.worker_process.hide_traceback", seen.append)
    reader = Reader()
    assert (list(reader.read(False)), reader.partitions(False)) == ([1], 2)
    assert seen == []
    method = getattr(reader, name)
    with pytest.raises(OptionError) as caught:
        list(method(True))
    assert seen == [caught.value]
