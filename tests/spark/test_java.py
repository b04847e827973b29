"""Sessions of `spark_session`: its Java, and the Python of its workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from barnabas.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.spark

# A limit for what hangs.
TIMEOUT_S = 300
# What Spark's start scripts call.
COMMANDS = ("bash", "basename", "cat", "chmod", "dirname", "env", "ls", "ps", "rm", "sed", "sh")
PROGRAM = """
from barnabas.spark.session import spark_session
spark = spark_session("no-java", "local[1]")
print("java", spark._jvm.java.lang.System.getProperty("java.version"))
print("sum", spark.range(10).selectExpr("sum(id)").head()[0])
"""


def test_a_session_starts_with_no_java_on_the_path(tmp_path: Path) -> None:
    for name in COMMANDS:
        command = which(name)
        if command is not None:
            (tmp_path / name).symlink_to(command)
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert "sum 45" in answer.stdout, answer.stderr
    assert "java 21" in answer.stdout


def worker_facts(_: object) -> tuple[str, str]:
    import pyspark

    return pyspark.__file__, os.environ["PYTHON_UNIX_DOMAIN_ENABLED"].lower()


def test_workers_import_the_installed_pyspark_and_use_unix_sockets(spark: SparkSession) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    facts = spark.sparkContext.parallelize([0], 1).map(worker_facts).first()
    assert facts == (pyspark.__file__, "true")


SOURCE_PROGRAM = """
from barnabas.spark.session import spark_session
spark = spark_session("other-python", "local[1]")
options = {"kafka.bootstrap.servers": "%s", "subscribe": "no-such-topic"}
print(spark.read.format("barnabas").options(**options).load().columns)
"""


@pytest.mark.nightly
def test_workers_use_the_interpreter_of_the_session(tmp_path: Path, broker: BrokerProcess) -> None:
    """The first Python on the path lacks the package, as without an activated environment."""
    (tmp_path / "python3").symlink_to("/bin/false")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYSPARK_")}
    answer = subprocess.run(
        [sys.executable, "-c", SOURCE_PROGRAM % broker.bootstrap],
        env=environment | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert "'timestampType'" in answer.stdout, answer.stderr
