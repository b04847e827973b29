"""A node whose system calls and wall clock a campaign changes, and whose turns are measured."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from barnabas.testing.node_process import NodeOptions, NodeProcess
from chaos.failing_node import Doors
from loop_turns import LoopTurns, loop_turns

LAUNCHER = Path(__file__).with_name("failing_node.py")
_METRICS = "metrics "


class ChaosNode(NodeProcess):
    """A `NodeProcess` that runs `failing_node.py`, with a metrics listener.

    Args:
        options: what it is.
        settings: all of its server.properties.
    """

    def __init__(self, options: NodeOptions, settings: Mapping[str, str]) -> None:
        super().__init__(options, {"metrics.listener": "127.0.0.1:0", **settings})
        self._control = options.directory / "doors.json"
        self._metrics_address = ""

    def set_faults(self, doors: Doors) -> None:
        """Make calls fail, or shift the clock, from now on."""
        temporary = self._control.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(doors)))
        temporary.replace(self._control)

    def clear_faults(self) -> None:
        """Remove all faults of calls and clock."""
        self._control.unlink(missing_ok=True)

    def failed_calls(self) -> list[str]:
        """The calls that have failed so far: kind, error and path of each."""
        path = Path(f"{self._control}.failed")
        return path.read_text().splitlines() if path.exists() else []

    def turns(self) -> LoopTurns:
        """How long turns of its event loop were since it was started.

        Raises:
            OSError: the metrics listener does not answer.
        """
        return loop_turns(self._metrics_address)

    def open_descriptors(self) -> int:
        """How many descriptors the process has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def prepare(self) -> None:
        """Write server.properties; a new process begins on a healthy machine."""
        super().prepare()
        self.clear_faults()

    def _command(self) -> list[str]:
        words = super()._command()
        start = words.index("start")
        return [sys.executable, str(LAUNCHER), str(self._control), *words[start:]]

    def _read_after_ready(self, deadline: float) -> None:
        self._metrics_address = self._read_line(deadline).removeprefix(_METRICS)
