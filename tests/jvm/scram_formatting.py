"""Format directories with a SCRAM user, by each of the two brokers."""

from __future__ import annotations

import subprocess
import sys

from jvm.java import run_java
from jvm.kafka_process import CLUSTER_ID

FIRST_USERS = (
    "--add-scram", "SCRAM-SHA-256=[name=first,password=one]",
    "--add-scram", "SCRAM-SHA-512=[name=second,password=two,iterations=8192]",
)  # fmt: skip


def format_by_kafka(file: str) -> None:
    words = ("format", "-t", CLUSTER_ID, "-c", file, *FIRST_USERS)
    done = run_java("kafka", "kafka.tools.StorageTool", *words)
    assert done.returncode == 0, done.stdout + done.stderr


def format_by_barnabas(file: str) -> None:
    words = ["format", file, "--cluster-id", CLUSTER_ID, *FIRST_USERS]
    done = subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
