"""The inode of a socket by its ports, from the kernel and from /proc."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from barnabas.testing import socket_inode as module
from barnabas.testing.socket_inode import socket_inode

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="netlink and /proc are Linux's")
HOST = "127.0.0.1"


@pytest.mark.parametrize("way", ["both", "_from_kernel", "_from_tables"])
def test_each_end_of_a_connection_is_found(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "_from_tables":
        monkeypatch.setattr(module, "_from_kernel", lambda *_: None)
    if way == "_from_kernel":
        monkeypatch.setattr(module, "_from_tables", lambda *_: None)
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((HOST, port)) as client:
            accepted, _ = server.accept()
            with accepted:
                own = client.getsockname()[1]
                assert socket_inode(HOST, own, port) == str(os.fstat(client.fileno()).st_ino)
                assert socket_inode(HOST, port, own) == str(os.fstat(accepted.fileno()).st_ino)


def test_no_inode_is_found_without_a_connection() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert socket_inode(HOST, port, port) is None


def test_proc_tables_are_used_if_netlink_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str | None:
        raise PermissionError("netlink")

    monkeypatch.setattr(module, "_from_kernel", refuse)
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((HOST, port)) as client:
            inode = socket_inode(HOST, client.getsockname()[1], port)
            assert inode == str(os.fstat(client.fileno()).st_ino)
