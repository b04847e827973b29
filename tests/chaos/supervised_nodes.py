"""Three machines with a node each: a supervisor with two brokers and a controller.

Nodes are numbered 1, 2, 3, as their controllers are. Node 1 has the brokers 101 and 102.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

import psutil

from barnabas.testing.cluster_process import (
    CLIENT_LISTENER,
    CONTROLLER_LISTENER,
    NodeOptions,
    NodeProcess,
)
from barnabas.testing.free_ports import free_ports
from machines import MACHINES, ClusterOnMachines

BROKERS_OF_NODE = 2
_BROKER_IDS_PER_NODE = 100
# The start and the end of several processes take minutes on a machine that runs many others.
_TIMEOUT_S = 300.0
_READY = re.compile(r"Process ready: (?:broker|controller)=(\d+) pid=(\d+)")


class SupervisedNode(NodeProcess):
    """A node with a supervisor: `barnabas start FILE --brokers 2`."""

    start_timeout_s = _TIMEOUT_S
    stop_timeout_s = _TIMEOUT_S

    def __init__(self, options: NodeOptions, settings: Mapping[str, str]) -> None:
        host, port = options.listeners[CLIENT_LISTENER]
        (second,) = free_ports(1)
        keys = {
            **settings,
            "barnabas.log.level": "info",
            "barnabas.node.brokers": str(BROKERS_OF_NODE),
            # A port that follows that of the first broker may be in use.
            "barnabas.node.broker.2.listeners": f"{CLIENT_LISTENER}://{host}:{second}",
        }
        del keys["advertised.listeners"]
        super().__init__(options, keys)
        listeners = [
            {CLIENT_LISTENER: (host, port)},
            {CLIENT_LISTENER: (host, second)},
        ]
        first = _BROKER_IDS_PER_NODE * self.node_id + 1
        self.brokers = [
            ProcessOfNode(self, first + number, "broker", each)
            for number, each in enumerate(listeners)
        ]
        voter = {CONTROLLER_LISTENER: options.listeners[CONTROLLER_LISTENER]}
        self.controller = ProcessOfNode(self, self.node_id, "controller", voter)
        # The processes of the last kill.
        self._killed: list[psutil.Process] = []

    def send_kill(self) -> None:
        """Kill the supervisor and all processes of the node at the same time."""
        self._killed = self._processes()
        # The supervisor first: it starts killed processes again.
        super().send_kill()
        for process in self._killed:
            _kill(process)

    def kill(self) -> int:
        """Kill all processes of the node, and wait until they have ended."""
        if self.is_running:
            self.send_kill()
        status = super().kill()
        _await_end(self._killed)
        return status

    def kill_supervisor(self) -> None:
        """Kill the supervisor alone, and wait until its processes have ended too."""
        processes = self._processes()
        super().send_kill()
        super().kill()
        _await_end(processes)

    def _processes(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


class ProcessOfNode(NodeProcess):
    """A broker or a controller of a node. The supervisor starts it again when it has ended."""

    def __init__(
        self, node: SupervisedNode, number: int, role: str, listeners: Mapping[str, tuple[str, int]]
    ) -> None:
        cluster_id, directory = node.options.cluster_id, node.options.directory
        super().__init__(NodeOptions(number, (role,), listeners, cluster_id, directory), {})
        self._node = node
        self.data_directory = node.data_directory / f"{role}.{number}"

    @property
    def is_running(self) -> bool:
        """Whether the supervisor runs, which starts this process again when it has ended."""
        return self._node.is_running

    @property
    def pid(self) -> int:
        """The process id of the last start."""
        found = dict(_READY.findall(self._node.log()))
        return int(found[str(self.node_id)])

    def log(self) -> str:
        """Return the log of the node."""
        return self._node.log()

    def send_kill(self) -> None:
        """Kill the process, unless it has just ended; the supervisor starts it again."""
        pid = self.pid
        for process in self._node._processes():
            if process.pid == pid:
                _kill(process)

    def kill(self) -> int:
        """Kill the process."""
        self.send_kill()
        return -signal.SIGKILL


class ClusterOfNodes(ClusterOnMachines):
    """Three supervised nodes. `nodes` are the supervisors, and `brokers` their brokers.

    Args:
        directory: parent of the nodes' directories.
        settings: broker keys of every node.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        super().__init__(MACHINES, 0, directory, settings, None, SupervisedNode)

    @property
    def supervisors(self) -> list[SupervisedNode]:
        """The nodes."""
        return [node for node in self.nodes.values() if isinstance(node, SupervisedNode)]

    @property
    def brokers(self) -> list[NodeProcess]:
        """The brokers of all nodes."""
        return [broker for node in self.supervisors for broker in node.brokers]

    @property
    def controllers(self) -> list[NodeProcess]:
        """The controllers of all nodes."""
        return [node.controller for node in self.supervisors]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.address for broker in self.brokers)

    def host_of(self, number: int) -> str:
        """Return the machine of a node, of its controller or of a broker."""
        return super().host_of(_node_of(number))

    def node(self, number: int) -> NodeProcess:
        """Return the broker or the controller with this id."""
        return next(e for e in (*self.brokers, *self.controllers) if e.node_id == number)

    def supervisor_of(self, number: int) -> SupervisedNode:
        """Return the node of a broker or a controller."""
        return next(node for node in self.supervisors if node.node_id == _node_of(number))

    def nodes_on(self, host: str) -> list[NodeProcess]:
        """Return the node on a machine."""
        return [node for node in self.nodes.values() if self.host_of(node.node_id) == host]

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop all nodes at the same time; each stops its brokers before its controller."""
        for node in self.supervisors:
            node.terminate()
        for node in self.supervisors:
            node.stop(timeout_s)


def _node_of(number: int) -> int:
    """Return the number of the node of a broker or controller."""
    return number if number < _BROKER_IDS_PER_NODE else number // _BROKER_IDS_PER_NODE


def _kill(process: psutil.Process) -> None:
    """Kill a process; psutil refuses another process with the same id."""
    assert process.pid != os.getpid()
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def _await_end(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=_TIMEOUT_S)
    assert not alive, f"processes of a killed node still run: {alive}"
