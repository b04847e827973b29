"""Signs of life of children, which the kernel marks with the process id of their sender."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys

import pytest

from barnabas.runtime.life_signs import LifeSigns, can_receive_life_signs

pytestmark = pytest.mark.skipif(
    not can_receive_life_signs(), reason="this system does not tell the sender of a message"
)

SEND = """
import os, socket, sys
address = os.environ["NOTIFY_SOCKET"].replace("@", "\\0")
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sender.sendto(sys.argv[1].encode(), address)
"""
WAIT_S = 90.0


def signs_after(*messages: str) -> tuple[list[int], list[int]]:
    """Return the signs that were received, and the processes that have sent the messages."""
    received: list[int] = []
    signs = LifeSigns(60_000, received.append)
    senders = []
    for message in messages:
        child = subprocess.Popen(
            [sys.executable, "-c", SEND, message], env=os.environ | signs.environment
        )
        assert child.wait(WAIT_S) == 0
        senders.append(child.pid)
    assert select.select([signs.fileno()], [], [], WAIT_S)[0]
    signs.read()
    signs.close()
    return received, senders


def test_each_watchdog_message_is_a_sign_of_its_sender() -> None:
    received, senders = signs_after("WATCHDOG=1", "READY=1\nWATCHDOG=1")
    assert received == senders


def test_other_messages_are_no_signs() -> None:
    received, senders = signs_after("STATUS=WATCHDOG=1", "WATCHDOG=1")
    assert received == senders[1:]


def test_the_children_learn_the_limit_in_microseconds() -> None:
    signs = LifeSigns(1500, lambda _: None)
    assert signs.environment["WATCHDOG_USEC"] == "1500000"
    signs.close()


def test_the_socket_has_no_file() -> None:
    signs = LifeSigns(1500, lambda _: None)
    assert signs.environment["NOTIFY_SOCKET"].startswith("@")
    signs.close()
    other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    other.bind("\0" + signs.environment["NOTIFY_SOCKET"][1:])
    other.close()
