"""Relays between nodes pass, delay, stall and cut bytes, link by link."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from barnabas.testing import relays as module
from barnabas.testing.relays import Relays

HERE, THERE = 1, 2
# A limit for what hangs.
TIMEOUT_S = 90.0


class Echo:
    """A server that echoes its input."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = self._listening.getsockname()
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        while data := connection.recv(65536):
            connection.sendall(data)
        connection.close()

    def close(self) -> None:
        self._listening.close()


@pytest.fixture(params=["kernel", "lsof"])
def relays(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relays]:
    if request.param == "lsof":
        if shutil.which("lsof") is None:
            pytest.skip("needs the command lsof")
        monkeypatch.setattr(module, "_HAS_NETLINK", False)
    made = Relays(lambda: {HERE: os.getpid()})
    yield made
    made.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.close()


@pytest.fixture
def connection(relays: Relays, echo: Echo) -> Iterator[socket.socket]:
    made = connect(relays.relayed(THERE, "X", echo.address))
    assert ask(made, b"first") == b"first"
    yield made
    made.close()


def connect(address: tuple[str, int]) -> socket.socket:
    made = socket.create_connection(address, TIMEOUT_S)
    made.settimeout(TIMEOUT_S)
    return made


def ask(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    received = b""
    while len(received) < len(data):
        piece = connection.recv(len(data) - len(received))
        if not piece:
            break
        received += piece
    return received


def is_ended(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"?")
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_bytes_pass_and_the_relay_identifies_the_node(
    relays: Relays, connection: socket.socket
) -> None:
    data = os.urandom(3_000_000)
    sender = threading.Thread(target=connection.sendall, args=(data,))
    sender.start()
    received = bytearray()
    while len(received) < len(data):
        received += connection.recv(1 << 20)
    sender.join()
    assert received == data
    assert relays.connections() == [(HERE, THERE)]


def test_a_cut_link_ends_connections_and_new_ones_until_it_is_healed(
    relays: Relays, connection: socket.socket, echo: Echo
) -> None:
    relays.cut(THERE, HERE)
    assert is_ended(connection)
    address = relays.relayed(THERE, "Y", echo.address)
    assert is_ended(connect(address))
    relays.heal()
    assert ask(connect(address), b"again") == b"again"


def test_a_cut_between_other_nodes_has_no_effect(relays: Relays, connection: socket.socket) -> None:
    relays.cut(THERE, 3)
    assert ask(connection, b"still") == b"still"


def test_a_stalled_link_delivers_its_bytes_after_it_is_healed(
    relays: Relays, connection: socket.socket
) -> None:
    relays.stall(HERE, THERE)
    connection.sendall(b"held")
    connection.settimeout(0.2)
    with pytest.raises(TimeoutError):
        connection.recv(1)
    connection.settimeout(TIMEOUT_S)
    relays.heal()
    assert connection.recv(100) == b"held"


def test_a_side_that_ends_while_its_link_is_stalled_ends_the_other_when_it_is_healed(
    relays: Relays, connection: socket.socket, echo: Echo
) -> None:
    other = connect(relays.relayed(THERE, "Y", echo.address))
    assert ask(other, b"also") == b"also"
    relays.stall(HERE, THERE)
    connection.sendall(b"held")
    other.sendall(b"kept")
    echo.connections[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    echo.connections[0].shutdown(socket.SHUT_RDWR)
    relays.heal()
    assert is_ended(connection)
    assert other.recv(4) == b"kept"


def test_a_delayed_link_keeps_the_order(relays: Relays, connection: socket.socket) -> None:
    relays.delay(HERE, THERE, 100)
    started = time.monotonic()
    for number in range(20):
        connection.sendall(b"%02d" % number)
    received = b""
    while len(received) < 40:
        received += connection.recv(100)
    assert received == b"".join(b"%02d" % number for number in range(20))
    # There and back; a clock's tick less, for both ends of the wait are rounded.
    assert time.monotonic() - started > 0.19


def test_the_end_of_one_side_ends_the_other(connection: socket.socket, echo: Echo) -> None:
    echo.connections[0].shutdown(socket.SHUT_RDWR)
    assert connection.recv(1) == b""


def test_a_server_that_is_down_ends_the_connection(relays: Relays, echo: Echo) -> None:
    address = relays.relayed(THERE, "Z", ("127.0.0.1", 1))
    assert is_ended(connect(address))


def test_a_connection_of_no_known_node_is_ended(relays: Relays, echo: Echo) -> None:
    relays.pids = dict
    assert is_ended(connect(relays.relayed(THERE, "Z", echo.address)))
