"""Clusters whose nodes are on several machines: the loopback addresses 127.0.0.1, 127.0.0.2, ..."""

from __future__ import annotations

import sys

import pytest

from barnabas.testing.cluster_process import ClusterProcess, NodeProcess

MACHINES = 3

# Other systems have only 127.0.0.1 without a change of their network.
needs_loopback_addresses = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has all addresses of 127.0.0.0/8"
)


class ClusterOnMachines(ClusterProcess):
    """A cluster whose brokers, and whose controllers, are spread over three machines in turn."""

    def host_of(self, number: int) -> str:
        """Return the machine of a broker (1, 2, ...) or of a separate controller (101, ...)."""
        return f"127.0.0.{(number - 1) % MACHINES + 1}"

    def nodes_on(self, host: str) -> list[NodeProcess]:
        """Return the brokers and controllers on a machine."""
        return [node for number, node in self.nodes.items() if self.host_of(number) == host]
