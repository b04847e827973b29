"""Fetches the jars of Spark's own Kafka connector with Maven; no Python package contains them.

`examples/spark-kafka/pom.xml` lists them; they are kept in `build/spark-kafka`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from examples.flights.processes import DemoError

ROOT = Path(__file__).parents[2]
POM = ROOT / "examples" / "spark-kafka" / "pom.xml"
JARS = ROOT / "build" / "spark-kafka"


def fetch_jars() -> str:
    """Return the connector's jars in the format of `spark.jars`; Maven fetches them the first time.

    Raises: DemoError without Maven, or with Maven's error message.
    """
    fetched = JARS / POM.name
    if not fetched.exists() or fetched.read_bytes() != POM.read_bytes():
        shutil.rmtree(JARS, ignore_errors=True)
        _run_maven()
        # The pom of the jars; written after all jars are present.
        shutil.copyfile(POM, fetched)
    return ",".join(str(jar) for jar in sorted(JARS.glob("*.jar")))


def _run_maven() -> None:
    if shutil.which("mvn") is None:
        raise DemoError(
            "Spark's own Kafka connector comes through Maven, and there is no `mvn`: install it "
            "(`apt install maven`), or leave `--format kafka` out"
        )
    done = subprocess.run(
        ["mvn", "-q", "-B", "-f", str(POM), "package"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DemoError(f"mvn could not fetch the jars of {POM}:\n{done.stdout}{done.stderr}")
