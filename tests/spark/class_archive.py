"""An archive of the classes that Spark loads, made once: Spark starts in half the time.

`jvm/class_archive.py` is the same for Apache Kafka. Java ignores an archive that does not fit the
running Java or the jars, so no result depends on it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from barnabas.client.facade import Client
from barnabas.testing.broker_process import BrokerProcess
from jvm.installed import installed
from spark.copies import write_records
from spark.killed_job import TIMEOUT_S, TO_THE_END

# The variable whose words Spark adds to the command of each driver.
VARIABLE = "SPARK_SUBMIT_OPTS"
# The quick compiler alone, and one thread that collects.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# The warning about an archive that does not fit would go to the output that tests read.
_QUIET = "-Xlog:disable"
_NAME = "classes.jsa"
_JOB = Path(__file__).with_name("job_to_topic.py")


def quick_java() -> str:
    """Return options of Java for processes of Spark that start quickly."""
    version = Path(pyspark.__file__).with_name("version.py")
    folder = installed("classes-spark", [version, _JOB], _install)
    return f"{_QUICK} {_QUIET} -XX:SharedArchiveFile={folder / _NAME}"


def _install(target: Path) -> None:
    """Copy a topic to another one, and archive the classes at the end of the driver."""
    target.mkdir()
    try:
        output = _copy(f"{_QUICK} {_QUIET} -XX:ArchiveClassesAtExit={target / _NAME}")
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        output = f"{error}\n"
    # Without an archive Spark starts too; tests show the problem.
    (target / "output.txt").write_text(output)


def _copy(options: str) -> str:
    """Copy a topic by a driver with these options of Java, and return the driver's output."""
    with BrokerProcess() as broker, Client(broker.bootstrap) as client:
        client.create_topic("trained", 3, 1)
        write_records(client, "trained")
        words = [broker.bootstrap, "trained", str(broker.directory), json.dumps(TO_THE_END)]
        done = subprocess.run(
            [sys.executable, str(_JOB), *words],
            env={**os.environ, VARIABLE: options},
            # This waits for the driver too, which inherits both.
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    return done.stdout + done.stderr
