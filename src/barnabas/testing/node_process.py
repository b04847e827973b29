"""One node of a cluster as a process: `barnabas start FILE`, killed and started again."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import msgspec

from barnabas.testing.server_process import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# What clients connect to, what controllers are reached at, and, if there is a third listener, what
# brokers reach each other at.
CLIENT_LISTENER = "PLAINTEXT"
CONTROLLER_LISTENER = "CONTROLLER"
REPLICATION_LISTENER = "REPLICATION"

Address = tuple[str, int]


class NodeOptions(msgspec.Struct, frozen=True):
    """What a node is, before it has a process."""

    node_id: int
    # "broker", "controller", or both.
    roles: tuple[str, ...]
    # Where it listens, by the listener's name.
    listeners: Mapping[str, Address]
    cluster_id: str
    # Its own; `server.properties`, the log file and the data lie in it.
    directory: Path
    # Removed by the node if the process that started it has ended; None: nothing is removed.
    orphaned_directory: Path | None = None


class NodeProcess(ServerProcess):
    """One `barnabas start FILE --set cluster.id=UUID`.

    Args:
        options: what it is.
        settings: all of its server.properties; changes to `node.settings` hold from its next start
            on.
    """

    def __init__(self, options: NodeOptions, settings: Mapping[str, str]) -> None:
        super().__init__(options.directory, "node.log")
        self.options = options
        self.node_id = options.node_id
        self.data_directory = options.directory / "data"
        self.properties_file = options.directory / "server.properties"
        self.settings = {**settings, "log.dirs": str(self.data_directory)}

    @property
    def is_broker(self) -> bool:
        """Whether clients can use it."""
        return "broker" in self.options.roles

    @property
    def is_controller(self) -> bool:
        """Whether it is a voter of the metadata quorum."""
        return "controller" in self.options.roles

    @property
    def address(self) -> str:
        """HOST:PORT of the listener for clients, past any relay; a controller's own listener."""
        name = CLIENT_LISTENER if self.is_broker else CONTROLLER_LISTENER
        host, port = self.options.listeners[name]
        return f"{host}:{port}"

    def wipe(self) -> None:
        """Lose everything it has stored; it must not run."""
        assert not self.is_running, "a running node's directory is not wiped"
        for entry in self.data_directory.iterdir():
            # The directory itself stays: it may be a file system of its own.
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def prepare(self) -> None:
        """Write server.properties."""
        lines = [f"{key}={value}" for key, value in self.settings.items()]
        self.properties_file.write_text("\n".join(lines) + "\n")

    def _command(self) -> list[str]:
        words = [sys.executable, "-m", "barnabas.cli.main", "start", str(self.properties_file)]
        words += ["--set", f"cluster.id={self.options.cluster_id}", "--exit-with", str(os.getpid())]
        if self.options.orphaned_directory is not None:
            words += ["--remove-orphaned", str(self.options.orphaned_directory)]
        return words
