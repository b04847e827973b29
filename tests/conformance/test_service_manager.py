"""A broker process that notifies a service manager of its state (systemd, Type=notify)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing.broker_process import BrokerProcess

LIMIT_S = 60.0


@pytest.fixture
def manager_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The datagram socket of a service manager, which the environment names."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        receiver.settimeout(LIMIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        yield receiver


@pytest.mark.conformance
def test_a_broker_notifies_the_manager_when_it_is_ready_alive_and_stopping(
    manager_socket: socket.socket, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert manager_socket.recv(4096).startswith(b"STATUS=starting")
        ready = manager_socket.recv(4096).decode().splitlines()
        assert ready == ["READY=1", f"STATUS=ready at {broker.bootstrap}"]
        assert [manager_socket.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        broker.terminate()
        while (message := manager_socket.recv(4096)) == b"WATCHDOG=1":
            pass
        assert message.startswith(b"STOPPING=1\nSTATUS=stopping")
        assert broker.wait() == 0


@pytest.mark.conformance
def test_a_broker_that_cannot_start_reports_its_reason(
    manager_socket: socket.socket, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("a file in the place of the directory")
    broker = BrokerProcess(tmp_path)
    broker.launch()
    assert broker.wait() == 1
    broker.close()
    assert manager_socket.recv(4096).startswith(b"STATUS=starting")
    reason = manager_socket.recv(4096).decode()
    assert reason.startswith("STATUS=")
    assert str(broker.data_directory) in reason
    assert "--data-dir" in reason
