"""A Spark cluster of one master and two workers, each with an address of its own.

Spark runs a speculative attempt of a task only on another host, and all executors of a
`local-cluster` master have one host.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark

from barnabas.testing.free_ports import free_ports
from spark.class_archive import quick_java
from spark.killed_job import TIMEOUT_S
from waiting import eventually

HOSTS = ("127.0.0.2", "127.0.0.3")
DEPLOY = "org.apache.spark.deploy"


@contextlib.contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """Run a cluster below a directory; yield the URL of its master. Each worker has one core."""
    home = Path(pyspark.__file__).parent
    variables = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": quick_java(),
    }
    port, *pages = free_ports(2 + len(HOSTS))
    url = f"spark://127.0.0.1:{port}"
    log = directory / "cluster.log"
    command = [str(home / "bin" / "spark-class")]
    with contextlib.ExitStack() as stack:

        def run(*words: str) -> None:
            with log.open("ab") as file:
                process = subprocess.Popen([*command, *words], env=variables, stderr=file)
            stack.callback(process.wait)
            stack.callback(process.kill)

        master = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(pages[0]))
        run(f"{DEPLOY}.master.Master", *master)
        for host, page in zip(HOSTS, pages[1:], strict=True):
            words = ["--host", host, "--cores", "1", "--memory", "600m", "--webui-port", str(page)]
            work = str(directory / f"work-{host}")
            run(f"{DEPLOY}.worker.Worker", *words, "--work-dir", work, url)
        eventually(
            lambda: log.read_text().count("Successfully registered with master") == len(HOSTS),
            "workers without a master",
            TIMEOUT_S,
        )
        yield url
