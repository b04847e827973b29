"""`barnabas start --registry`: a process beside the broker, which lives and ends with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import urllib.error
from pathlib import Path

import psutil
import pytest

from barnabas.testing.broker_process import BrokerProcess, BrokerStartError
from barnabas.testing.free_ports import HOST, free_ports
from barnabas.testing.registry_process import RegistryProcess
from registry_requests import QUICK_GROUPS, register, request
from waiting import eventually, eventually_equal


class BrokerWithRegistry(BrokerProcess):
    """A broker whose registry is ready when the broker is."""

    def __init__(self, directory: Path) -> None:
        (port,) = free_ports(1)
        self.url = f"http://{HOST}:{port}"
        super().__init__(directory, QUICK_GROUPS, ["--registry", f"{HOST}:{port}"])

    def _read_after_ready(self, deadline: float) -> None:
        assert self._read_line(deadline) == f"registry {self.url}/"

    def registry_pid(self) -> int | None:
        """The id of the registry's process; None while it does not run."""
        for child in psutil.Process(self.pid).children():
            is_ended = child.status() == psutil.STATUS_ZOMBIE
            if not is_ended and "registry" in child.cmdline():
                return child.pid
        return None


def test_the_registry_is_ready_and_keeps_its_schemas(tmp_path: Path) -> None:
    with BrokerWithRegistry(tmp_path) as broker:
        assert register(broker.url, "a", '"string"') == 1
        assert broker.stop() == 0
        assert broker.log() == ""
        broker.start()
        assert request("GET", f"{broker.url}/subjects") == (200, ["a"])


def test_a_killed_registry_is_started_again(tmp_path: Path) -> None:
    with BrokerWithRegistry(tmp_path) as broker:
        register(broker.url, "a", '"string"')
        first = broker.registry_pid()
        assert first is not None
        os.kill(first, signal.SIGKILL)
        eventually(lambda: broker.registry_pid() not in (None, first))

        def subjects() -> object:
            try:
                return request("GET", f"{broker.url}/subjects")
            except (urllib.error.URLError, ConnectionError):
                return None

        eventually_equal(subjects, (200, ["a"]))
        assert "the registry has ended with exit status -9; it is started again" in broker.log()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_the_registry_ends_with_its_broker(tmp_path: Path, end: str) -> None:
    with BrokerWithRegistry(tmp_path) as broker:
        pid = broker.registry_pid()
        assert pid is not None
        getattr(broker, end)()
        eventually(lambda: not psutil.pid_exists(pid))


def test_a_registry_that_cannot_start_ends_the_broker(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        broker = BrokerWithRegistry(tmp_path)
        broker._arguments[-1] = f"{HOST}:{taken.getsockname()[1]}"
        with pytest.raises(BrokerStartError):
            broker.start()
    assert "cannot be used" in broker.log()
    assert "barnabas: the registry has ended with exit status 1" in broker.log()


def test_a_registry_ends_with_its_parent_while_it_waits_for_brokers(tmp_path: Path) -> None:
    with socket.socket() as silent, subprocess.Popen(["sleep", "1000"]) as parent:
        silent.bind((HOST, 0))
        silent.listen()
        address = f"{HOST}:{silent.getsockname()[1]}"
        words = ["--exit-with", str(parent.pid), "-X", "default.api.timeout.ms=600000"]
        registry = RegistryProcess(address, tmp_path, words)
        registry.launch()
        # The registry waits for a response of the broker.
        silent.accept()
        parent.kill()
        parent.wait()
        assert registry.wait() == 0
