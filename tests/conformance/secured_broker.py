"""A broker of the directory that `barnabas security init` creates."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from barnabas.settings.properties import parse_properties
from barnabas.testing.broker_process import ServerProcess
from barnabas.testing.free_ports import HOST, free_ports
from waiting import PATIENCE_S


def cli(*words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run `barnabas` with these words to its end."""
    return subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", *words],
        capture_output=True,
        text=True,
        input=stdin,
        timeout=PATIENCE_S,
        check=False,
    )


class SecuredBroker(ServerProcess):
    """The broker, with the files for its clients."""

    # A broker with TLS and ACLs imports more than an open one.
    start_timeout_s = 90.0

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "broker.log")
        port, certificate_port = free_ports(2)
        self.files = directory / "secured"
        hosts = ("--host", "localhost", "--host", HOST)
        ports = ("--port", str(port), "--certificate-port", str(certificate_port))
        self.init_result = cli("security", "init", str(self.files), *hosts, *ports)
        self.with_password = f"{HOST}:{port}"
        self.with_certificate = f"{HOST}:{certificate_port}"

    @property
    def password(self) -> str:
        """The password of the user admin."""
        return (self.files / "admin.password").read_text().strip()

    def file(self, client: str) -> str:
        """Return the path of the properties file for a kind of client."""
        return str(self.files / f"client-{client}.properties")

    def keys(self, client: str) -> dict[str, str]:
        """Return the content of the properties file for a kind of client."""
        return parse_properties(Path(self.file(client)).read_text())

    def _command(self) -> list[str]:
        words = [sys.executable, "-m", "barnabas.cli.main", "start"]
        return [*words, str(self.files / "server.properties"), "--exit-with", str(os.getpid())]
