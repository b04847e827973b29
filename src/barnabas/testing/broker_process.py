"""A broker as a separate process on a free port: start, stop, kill and restart it.

The broker ends with this process, even if this process is killed. It then removes its temporary
directory.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.testing.free_ports import HOST, free_ports
from barnabas.testing.server_process import BrokerStartError, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["BrokerProcess", "BrokerStartError"]

_METRICS = "metrics "


class BrokerProcess(ServerProcess):
    """A `barnabas start` process; use a `with` block, or `start` and `stop`.

    Args:
        directory: directory of the data and the log file; a temporary directory when None.
        settings: broker keys, passed with `--set`.
        arguments: further command line arguments.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="barnabas-")
            directory = self._temporary.name
        super().__init__(Path(directory), "broker.log")
        self.data_directory = self.directory / "data"
        self.settings = dict(settings or {})
        self._arguments = list(arguments)
        self.host = HOST
        (self.port,) = free_ports(1)
        # HOST:PORT of `metrics.listener` if it is set, else empty.
        self.metrics_address = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.bootstrap!r})"

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, the value of bootstrap.servers."""
        return f"{self.host}:{self.port}"

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; its partitions have leaders when this returns.

        Raises:
            AdminResultsError: the topic exists already, or the broker refused it.
        """
        from barnabas.testing.topic_creation import create_topic

        create_topic(self.bootstrap, name, partitions, configs=configs)

    def close(self) -> None:
        """Kill the broker if it runs; remove the directory if it is temporary."""
        super().close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "barnabas.cli.main", "start"]
        command += ["--listen", f"{self.host}:{self.port}", "--data-dir", str(self.data_directory)]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        command += ["--exit-with", str(os.getpid())]
        if self._temporary is not None:
            command += ["--remove-orphaned", str(self.directory)]
        return command + self._arguments

    def _read_after_ready(self, deadline: float) -> None:
        if "metrics.listener" in self.settings:
            self.metrics_address = self._read_line(deadline).removeprefix(_METRICS)
