"""A node of several broker processes under a supervisor (`barnabas start --brokers`), for tests."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from barnabas.runtime.process_table import process_identity
from barnabas.testing.broker_process import BROKER_SETTINGS, BrokerProcess
from barnabas.testing.free_ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_READY = re.compile(r"Process ready: (?:broker|controller)=(\d+) pid=(\d+)")
_HTTP_TIMEOUT_S = 60.0
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
# The hosts of the three nodes of a cluster.
HOSTS = {1: "127.0.0.1", 2: "127.0.0.2", 3: "127.0.0.3"}


class NodeOfBrokers(BrokerProcess):
    """A `barnabas start --brokers` process.

    The start of several processes takes minutes on a machine that runs many others.

    Args:
        directory: directory of the data and the log file.
        brokers: the number of brokers.
        settings: keys, passed with `--set`.
        arguments: further arguments.
    """

    start_timeout_s = 300.0
    stop_timeout_s = 300.0

    def __init__(
        self,
        directory: Path,
        brokers: int,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        keys = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "metrics.listener": "127.0.0.1:0",
            "barnabas.log.level": "info",
            **BROKER_SETTINGS,
            **(settings or {}),
        }
        super().__init__(directory, keys, ["--brokers", str(brokers), *arguments])

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return self.advertised_address

    @property
    def process_ids(self) -> dict[int, int]:
        """The last process of each broker and controller, by its id."""
        return {int(node_id): int(pid) for node_id, pid in _READY.findall(self.log())}

    def living(self) -> list[int]:
        """Return the ids of those processes that still run."""
        found = self.process_ids.items()
        return [node_id for node_id, pid in found if process_identity(pid) is not None]

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the text of an HTTP request to the node's one address."""
        url = f"http://{self.metrics_address}{path}"
        try:
            with urllib.request.urlopen(url, timeout=_HTTP_TIMEOUT_S) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


def three_nodes(directory: Path) -> list[NodeOfBrokers]:
    """Return three nodes of two brokers and a voter each; none is started yet."""
    clients, controllers = free_ports(2)
    voters = ",".join(f"{node_id}@{host}:{controllers}" for node_id, host in HOSTS.items())
    return [
        NodeOfBrokers(
            directory / f"node-{node_id}",
            2,
            {
                "node.id": str(node_id),
                "cluster.id": _CLUSTER_ID,
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://{host}:{clients},CONTROLLER://{host}:{controllers}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "metrics.listener": f"{host}:0",
                "default.replication.factor": "3",
                "min.insync.replicas": "2",
            },
        )
        for node_id, host in HOSTS.items()
    ]
