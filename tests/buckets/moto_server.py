"""A bucket server: `moto`, in a process of its own.

python tests/buckets/moto_server.py      prints its address, and runs until its input ends
"""

from __future__ import annotations

import subprocess
import sys
from typing import Self


class MotoServer:
    """The server, at a free port."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        # HOST:PORT.
        self.address = self._process.stdout.readline().strip()
        assert self.address, "moto did not start"

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve() -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"{host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    _serve()
