"""Commands that are killed before one of their changes of configs.

Clients reach both clusters through relays that read the requests. The relay kills the command as
soon as it sends the change after the last one that it may make, and drops this request.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
from struct import Struct
from typing import TYPE_CHECKING

from barnabas.protocol.api_keys import ApiKey
from barnabas.testing.cluster_process import CLIENT_LISTENER
from barnabas.testing.free_ports import HOST
from conformance.cli_shell import SECONDS, Shell

if TYPE_CHECKING:
    from barnabas.testing.cluster_process import Address

# Size of a request, and its API key.
_SIZE, _KEY = Struct(">i"), Struct(">h")
_CHUNK = 1 << 16


class Changes:
    """A `Network` for clusters of one broker. It counts the changes that one command makes."""

    relays_clients = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._command: subprocess.Popen[str] | None = None
        self._left = 0
        self._listening: list[socket.socket] = []

    def relayed(self, node_id: int, listener: str, address: Address) -> Address:
        """Open a relay in front of the listener for clients."""
        del node_id
        if listener != CLIENT_LISTENER:
            return address
        bound = socket.create_server((HOST, 0))
        self._listening.append(bound)
        threading.Thread(target=self._accept, args=(bound, address), daemon=True).start()
        host, port = bound.getsockname()
        return host, port

    def close(self) -> None:
        """Accept no more connections."""
        for each in self._listening:
            each.close()

    def stops(self, shell: Shell, count: int, *words: str) -> bool:
        """Run a command and kill it after some changes. Return whether it was killed.

        Raises:
            AssertionError: the command failed.
        """
        with self._lock:
            # No request of the command passes before this is set.
            self._left = count
            self._command = subprocess.Popen(
                shell.command(*words),
                env=shell.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        output, _ = self._command.communicate(timeout=2 * SECONDS)
        status = self._command.returncode
        with self._lock:
            self._command = None
        assert status in (0, -signal.SIGKILL), output
        return status != 0

    def _may_change(self) -> bool:
        with self._lock:
            if self._command is None:
                return True
            self._left -= 1
            if self._left < 0:
                self._command.kill()
            return self._left >= 0

    def _accept(self, bound: socket.socket, address: Address) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = bound.accept()
                threading.Thread(target=self._relay, args=(client, address), daemon=True).start()

    def _relay(self, client: socket.socket, address: Address) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(address) as broker:
            threading.Thread(target=_copy, args=(broker, client), daemon=True).start()
            self._pass_requests(client, broker)

    def _pass_requests(self, client: socket.socket, broker: socket.socket) -> None:
        with client.makefile("rb") as requests:
            while header := requests.read(_SIZE.size):
                body = requests.read(*_SIZE.unpack(header))
                (key,) = _KEY.unpack_from(body)
                if key == ApiKey.INCREMENTAL_ALTER_CONFIGS and not self._may_change():
                    return
                broker.sendall(header + body)


def _copy(broker: socket.socket, client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := broker.recv(_CHUNK):
            client.sendall(data)
        client.shutdown(socket.SHUT_RDWR)
