"""Notifications to a service manager, received by a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.runtime.service_manager import (
    SilentServiceManager,
    SystemdServiceManager,
    service_manager,
)


class ManualTimer:
    """A timer whose callbacks the test runs."""

    def __init__(self) -> None:
        self.armed: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> ManualTimer:
        self.armed.append((delay_ms, callback))
        return self

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.armed.append((0, callback))

    def cancel(self) -> None:
        self.armed.clear()

    def run_oldest(self) -> float:
        """Run the oldest callback; return its delay in milliseconds."""
        delay_ms, callback = self.armed.pop(0)
        callback()
        return delay_ms


@pytest.fixture
def manager_socket(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.setblocking(False)
        yield receiver


def received(manager_socket: socket.socket) -> list[str]:
    """All datagrams that have arrived."""
    found = []
    while True:
        try:
            found.append(manager_socket.recv(4096).decode())
        except BlockingIOError:
            return found


def environment(receiver: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": receiver.getsockname(), "HOME": "/", **more}


def test_each_step_of_a_process_is_one_datagram(manager_socket: socket.socket) -> None:
    manager = service_manager(ManualTimer(), environment(manager_socket))
    manager.starting("starting")
    manager.ready("ready at 127.0.0.1:9092")
    manager.stopping("stopping")
    manager.failed("the disk\nis full")
    assert received(manager_socket) == [
        "STATUS=starting",
        "READY=1\nSTATUS=ready at 127.0.0.1:9092",
        "STOPPING=1\nSTATUS=stopping",
        "STATUS=the disk is full",
    ]


def test_an_abstract_address_is_reached() -> None:
    name = f"barnabas-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        receiver.setblocking(False)
        service_manager(ManualTimer(), {"NOTIFY_SOCKET": f"@{name}"}).ready("x")
        assert received(receiver) == ["READY=1\nSTATUS=x"]


def test_watchdog_notifications_are_sent_twice_within_the_limit(
    manager_socket: socket.socket,
) -> None:
    timer = ManualTimer()
    watchdog = {"WATCHDOG_USEC": "6000000", "WATCHDOG_PID": str(os.getpid())}
    manager = service_manager(timer, environment(manager_socket, **watchdog))
    manager.starting("loading")
    assert not timer.armed
    manager.ready("x")
    assert timer.run_oldest() == 3000
    assert timer.run_oldest() == 3000
    assert received(manager_socket)[1:] == ["READY=1\nSTATUS=x", *["WATCHDOG=1"] * 3]


@pytest.mark.parametrize(
    "watchdog",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "6000000", "WATCHDOG_PID": "1"},
    ],
)
def test_no_watchdog_notifications_are_sent_without_a_watchdog_for_this_process(
    manager_socket: socket.socket, watchdog: dict[str, str]
) -> None:
    timer = ManualTimer()
    service_manager(timer, environment(manager_socket, **watchdog)).ready("x")
    assert not timer.armed
    assert received(manager_socket) == ["READY=1\nSTATUS=x"]


def test_a_child_process_does_not_inherit_the_socket(manager_socket: socket.socket) -> None:
    variables = environment(manager_socket, WATCHDOG_USEC="1", WATCHDOG_PID="1")
    service_manager(ManualTimer(), variables)
    assert variables == {"HOME": "/"}


@pytest.mark.parametrize("variables", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}])
def test_without_a_manager_nothing_is_sent(variables: dict[str, str]) -> None:
    assert isinstance(service_manager(ManualTimer(), variables), SilentServiceManager)


def test_notifications_that_do_not_fit_are_sent_later(
    manager_socket: socket.socket,
) -> None:
    timer = ManualTimer()
    manager = service_manager(timer, environment(manager_socket))
    while not timer.armed:
        manager.starting("filling the queue")
    manager.ready("x")
    timer.run_oldest()
    assert timer.armed, "the queue is still full, so it is tried again"
    received(manager_socket)
    timer.run_oldest()
    assert received(manager_socket) == ["STATUS=x\nREADY=1"]
    assert not timer.armed


def test_a_missing_service_manager_causes_no_error(tmp_path: Path) -> None:
    timer = ManualTimer()
    manager = SystemdServiceManager(str(tmp_path / "nobody"), None, timer)
    manager.ready("x")
    manager.stopping("x")
    assert not timer.armed
