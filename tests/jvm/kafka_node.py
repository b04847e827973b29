"""A node of a cluster of Apache Kafka, with the interface of `barnabas.testing.NodeProcess`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from barnabas.protocol.primitives import uuid_to_string
from barnabas.testing.broker_process import BrokerStartError
from barnabas.testing.cluster_process import NodeOptions, NodeProcess
from jvm.java import java_command
from jvm.kafka_process import quick_machine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMAT_TIMEOUT_S = 180.0
POLL_S = 0.05
META = "meta.properties"


class KafkaNode(NodeProcess):
    """One Apache Kafka, formatted for its cluster if its directory is empty.

    Args:
        options: roles, addresses and configs of the node.
        settings: all keys of server.properties.
        machine: Java options for memory, compiler and collector; by default those for a quick
            start.
    """

    # The folder of tests/jvm with the pom.xml of the version.
    jars = "kafka"
    # Options of `kafka-storage format` in addition to cluster id and file.
    format_options: tuple[str, ...] = ()
    # Whether the directory may be a copy of the formatted directory of another node. The nodes of
    # a dynamic quorum have directory ids of their own in the metadata log.
    may_copy = True
    start_timeout_s = 180.0
    stop_timeout_s = 90.0

    def __init__(
        self,
        options: NodeOptions,
        settings: Mapping[str, str],
        machine: Sequence[str] | None = None,
    ) -> None:
        super().__init__(options, settings)
        if machine is None:
            machine = ("-Xms64m", *quick_machine(self.jars))
        self._java = java_command(self.jars, log_level="INFO", machine=machine)

    def prepare(self) -> None:
        super().prepare()
        if (self.data_directory / META).exists():
            return
        if not self.may_copy:
            self.format()
            return
        # Formatting takes two seconds, and the files of two nodes differ only in two lines.
        template = self.directory.parent / "formatted"
        if not template.exists():
            self.format()
            shutil.copytree(self.data_directory, template)
            return
        shutil.copytree(template, self.data_directory, dirs_exist_ok=True)
        meta = self.data_directory / META
        own = {"node.id": str(self.node_id), "directory.id": uuid_to_string(os.urandom(16))}
        lines = []
        for line in meta.read_text().splitlines():
            key, _, value = line.partition("=")
            lines.append(f"{key}={own.get(key, value)}\n")
        meta.chmod(0o600)
        meta.write_text("".join(lines))

    def format(self) -> None:
        """Format the directories by Kafka's tool."""
        words = ["kafka.tools.StorageTool", "format", "-t", self.options.cluster_id]
        words += self.format_options
        with self.log_file.open("ab") as log:
            subprocess.run(
                [*self._java, *words, "-c", str(self.properties_file)],
                stdout=log,
                stderr=log,
                check=True,
                timeout=FORMAT_TIMEOUT_S,
            )

    def _command(self) -> list[str]:
        return [*self._java, "kafka.Kafka", str(self.properties_file)]

    def _says_ready(self) -> bool:
        return False

    def _await_ready(self, deadline: float) -> None:
        """Wait until the listener for clients is open, which follows the unfencing."""
        host, _, port = self.address.rpartition(":")
        while time.monotonic() < deadline:
            if not self.is_running:
                raise BrokerStartError(f"Kafka ended\n{self.log()[-4000:]}")
            try:
                socket.create_connection((host, int(port)), 1).close()
            except OSError:
                time.sleep(POLL_S)
            else:
                return
        raise BrokerStartError(f"Kafka did not open its listener in time\n{self.log()[-4000:]}")
