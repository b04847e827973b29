"""Processes of a schema registry, and requests to them."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnabas.testing.broker_process import ServerProcess
from barnabas.testing.free_ports import HOST, free_ports

SECONDS = 60
# A broker whose groups form at once and may have short sessions.
QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
# Timeouts of the group, so that a dead leader is replaced soon.
QUICK_SESSION = (*("-X", "session.timeout.ms=2000"), *("-X", "heartbeat.interval.ms=200"))


class RegistryNode(ServerProcess):
    """A `barnabas registry` process.

    Args:
        directory: directory of the log file.
        bootstrap: HOST:PORT of the broker.
        arguments: further command line arguments.
    """

    def __init__(self, directory: Path, bootstrap: str, arguments: Sequence[str] = ()) -> None:
        super().__init__(directory, "registry.log")
        (self.port,) = free_ports(1)
        self.url = f"http://{HOST}:{self.port}"
        self._words = ["-b", bootstrap, "--listen", f"{HOST}:{self.port}", *arguments]

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "barnabas", "registry", *self._words]


def request(
    method: str, url: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Send a request; return the status and the JSON of the response."""
    data = None if body is None else json.dumps(body).encode()
    given = {"Content-Type": "application/vnd.schemaregistry.v1+json", **(headers or {})}
    sent = urllib.request.Request(url, data, given, method=method)
    try:
        with urllib.request.urlopen(sent, timeout=SECONDS) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def register(url: str, subject: str, schema: str) -> int:
    """Register a schema; return its id."""
    status, answer = request("POST", f"{url}/subjects/{subject}/versions", {"schema": schema})
    assert status == 200, answer
    return int(answer["id"])
