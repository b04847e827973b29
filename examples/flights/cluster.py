"""The demo's brokers: three processes, started and killed by `barnabas cluster`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from examples.flights.processes import DemoError

BROKERS = 3


class DemoCluster:
    """Three brokers on this machine, which the demo stops at its end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def start(self) -> str:
        """Start all brokers; return the bootstrap servers."""
        ready = self._run("start", "--brokers", str(BROKERS), "--base-port", "0", "--detach")
        return ready.split()[1]

    def kill_leader(self, topic: str, partition: int) -> int:
        """Kill the leader of a partition (kill -9); return its broker id."""
        before = self._running()
        self._run("kill", "--leader-of", f"{topic}:{partition}")
        (killed,) = before - self._running()
        return killed

    def start_again(self, node: int) -> None:
        """Start a killed broker, and wait until it is in sync."""
        self._run("restart", str(node))

    def stop(self) -> None:
        """Stop all brokers cleanly."""
        if self.directory.exists():
            self._run("stop")

    def _running(self) -> set[int]:
        # Ends with status 1 when a node does not run.
        status: dict[str, Any] = json.loads(self._call("status", "--json").stdout)
        return {node["node"] for node in status["nodes"] if node["state"] == "running"}

    def _run(self, *words: str) -> str:
        done = self._call(*words)
        if done.returncode:
            raise DemoError(f"barnabas cluster {words[0]}: {done.stderr.strip()}")
        return done.stdout

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "barnabas.cli.main", "cluster", *words]
        return subprocess.run(
            [*command, "--directory", str(self.directory)],
            capture_output=True,
            text=True,
            check=False,
            env=dict(os.environ),
        )
