"""A node whose system calls and wall clock a campaign changes, and whose turns are measured."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from barnabas.testing.cluster_process import NodeOptions, NodeProcess
from chaos.failing_node import InjectedFaults
from loop_turns import LoopTurns, loop_turns, metrics_text

LAUNCHER = Path(__file__).with_name("failing_node.py")
_METRICS = "metrics "


class ChaosNode(NodeProcess):
    """A `NodeProcess` that runs `failing_node.py`, with a metrics listener.

    Args:
        options: id, roles and ports of the node.
        settings: all keys of its server.properties.
    """

    def __init__(self, options: NodeOptions, settings: Mapping[str, str]) -> None:
        super().__init__(options, {"metrics.listener": "127.0.0.1:0", **settings})
        self._control = options.directory / "faults.json"
        self._metrics_address = ""
        # Standard streams (0 and 2) that the next starts of the process do not have.
        self.closed_streams: tuple[int, ...] = ()

    def set_faults(self, faults: InjectedFaults) -> None:
        """Inject failing calls or a shifted clock, from now on."""
        temporary = self._control.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(faults)))
        temporary.replace(self._control)

    def clear_faults(self) -> None:
        """Remove all faults of calls and clock."""
        self._control.unlink(missing_ok=True)

    def failed_calls(self) -> list[str]:
        """Return kind, error and path of each call that has failed so far."""
        path = Path(f"{self._control}.failed")
        return path.read_text().splitlines() if path.exists() else []

    def turns(self) -> LoopTurns:
        """Return the durations of turns of the event loop since the start.

        Raises:
            OSError: the metrics listener does not answer.
        """
        return loop_turns(self._metrics_address)

    def storage_damage(self) -> int:
        """Return how often the node has found damage in its files since the start."""
        return sum(
            int(sample.value)
            for family in text_string_to_metric_families(metrics_text(self._metrics_address))
            for sample in family.samples
            if sample.name == "barnabas_storage_damage_total"
        )

    def open_descriptors(self) -> int:
        """Return the number of open descriptors of the process."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def prepare(self) -> None:
        """Write server.properties, and remove injected faults."""
        super().prepare()
        self.clear_faults()

    def _command(self) -> list[str]:
        words = super()._command()
        start = words.index("start")
        command = [sys.executable, str(LAUNCHER), str(self._control), *words[start:]]
        if not self.closed_streams:
            return command
        closing = " ".join(f"{number}>&-" for number in self.closed_streams)
        return ["/bin/sh", "-c", f'exec "$@" {closing}', "sh", *command]

    def _read_after_ready(self, deadline: float) -> None:
        self._metrics_address = self._read_line(deadline).removeprefix(_METRICS)
