"""One node of a cluster as a process: `barnabas start FILE`."""

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

# Listener for clients, listener of controllers, and an optional listener between brokers.
CLIENT_LISTENER = "PLAINTEXT"
CONTROLLER_LISTENER = "CONTROLLER"
REPLICATION_LISTENER = "REPLICATION"

Address = tuple[str, int]


class NodeOptions(msgspec.Struct, frozen=True):
    """Identity, roles and addresses of a node."""

    node_id: int
    # "broker", "controller", or both.
    roles: tuple[str, ...]
    # Addresses by listener name.
    listeners: Mapping[str, Address]
    cluster_id: str
    # Directory of the node: contains `server.properties`, the log file and the data.
    directory: Path
    # Directory that the node removes if the process that started it has ended; None for none.
    orphaned_directory: Path | None = None


class NodeProcess(ServerProcess):
    """A node as a process: `barnabas start FILE --set cluster.id=UUID`.

    Args:
        options: identity, roles and addresses of the node.
        settings: the keys of server.properties. Changes to `node.settings` apply at the next
            start.
    """

    def __init__(self, options: NodeOptions, settings: Mapping[str, str]) -> None:
        super().__init__(options.directory, "node.log")
        self.options = options
        self.node_id = options.node_id
        self.data_directory = options.directory / "data"
        self.properties_file = options.directory / "server.properties"
        self.settings = {**settings, "log.dirs": str(self.data_directory)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"

    @property
    def is_broker(self) -> bool:
        """Whether the node accepts clients."""
        return "broker" in self.options.roles

    @property
    def is_controller(self) -> bool:
        """Whether the node is a voter of the metadata quorum."""
        return "controller" in self.options.roles

    @property
    def address(self) -> str:
        """HOST:PORT of the node's own listener, without a relay; for clients if it is a broker."""
        name = CLIENT_LISTENER if self.is_broker else CONTROLLER_LISTENER
        host, port = self.options.listeners[name]
        return f"{host}:{port}"

    def wipe(self) -> None:
        """Delete all stored data; the node must not run."""
        assert not self.is_running, "the directory of a running node cannot be deleted"
        for entry in self.data_directory.iterdir():
            # Keep the directory itself: it may be a mount point.
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def prepare(self) -> None:
        """Write server.properties."""
        lines = [f"{key}={value}" for key, value in self.settings.items()]
        self.properties_file.write_text("\n".join(lines) + "\n")

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "barnabas.cli.main", "start", str(self.properties_file)]
        command += [
            "--set",
            f"cluster.id={self.options.cluster_id}",
            "--exit-with",
            str(os.getpid()),
        ]
        if self.options.orphaned_directory is not None:
            command += ["--remove-orphaned", str(self.options.orphaned_directory)]
        return command
