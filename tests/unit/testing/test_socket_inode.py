"""The inode of a socket by its ports, from the kernel and from /proc."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from barnabas.testing import relays as module
from barnabas.testing.relays import socket_inode

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="netlink and /proc are Linux's")
HOST = "127.0.0.1"


def refuse(*_: object) -> str | None:
    raise PermissionError("netlink")


@pytest.mark.parametrize("is_netlink_allowed", [True, False])
def test_each_end_of_a_connection_is_found(
    is_netlink_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_netlink_allowed:
        monkeypatch.setattr(module, "_from_kernel", refuse)
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((HOST, port)) as client:
            accepted, _ = server.accept()
            with accepted:
                own = client.getsockname()[1]
                assert socket_inode(HOST, own, port) == str(os.fstat(client.fileno()).st_ino)
                assert socket_inode(HOST, port, own) == str(os.fstat(accepted.fileno()).st_ino)


def test_a_socket_that_is_closed_is_not_searched_for_in_the_slow_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[object] = []
    monkeypatch.setattr(module, "_from_tables", lambda *ports: searched.append(ports))
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert socket_inode(HOST, port, port) is None
        assert socket_inode(HOST, port + 1, port) is None
    if socket_is_found_by_the_kernel():
        assert searched == []


def socket_is_found_by_the_kernel() -> bool:
    """Whether netlink is allowed here."""
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((HOST, port)) as client:
            try:
                return module._from_kernel(HOST, client.getsockname()[1], port) is not None
            except OSError:
                return False
