"""Free ports that stay reserved for a child process."""

from __future__ import annotations

import socket
import sys

import pytest

from barnabas.runtime.port_reservation import PortReservations


def test_a_server_can_listen_at_a_reserved_port_again_and_again() -> None:
    ports = PortReservations()
    port = ports.reserve("127.0.0.1")
    for _ in range(2):
        with (
            socket.create_server(("127.0.0.1", port)),
            socket.create_connection(("127.0.0.1", port)),
        ):
            pass
    ports.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps such ports")
def test_a_reserved_port_is_given_to_no_other_program() -> None:
    ports = PortReservations()
    reserved = {ports.reserve("127.0.0.1") for _ in range(50)}
    assert len(reserved) == 50
    others = [socket.create_server(("127.0.0.1", 0)) for _ in range(200)]
    assert not reserved & {each.getsockname()[1] for each in others}
    for each in others:
        each.close()
    ports.close()
