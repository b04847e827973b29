"""Settings of brokers that open data directories in turn, and a check of the directories."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Broker = BrokerProcess | KafkaProcess

SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    # The successor of a killed broker waits only briefly for the end of its session.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    # Periodic work happens early.
    "log.initial.task.delay.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "offsets.retention.check.interval.ms": "500",
}


def verify(directories: Iterable[Path]) -> None:
    """Check that `barnabas log verify` finds no error in the directories."""
    for directory in directories:
        words = [sys.executable, "-m", "barnabas.cli.main", "log", "verify", str(directory)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
