"""The machine that a page sees: its addresses, directories and commands, on this machine.

Pages name port 9092 and its neighbors, host1 to host9 and /var/lib/barnabas. A test uses free ports
of the loopback interface, and directories below its own.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from barnabas.testing.free_ports import is_free
from documents.blocks import ROOT

# What stands for the first digit of the pages' ports: 9092 becomes 17092 for instance.
_THOUSANDS = range(10, 32)
# Ports that pages use, without their first digit.
_PORTS = (80, 92, 93, 94, 95, 96, 192, 193, 194, 195, 292, 293, 294, 308, 392, 393, 404)
_PORT = re.compile(r"(?:(?<=[\w/\]]:)|(?<=--port ))9(?=\d{3}\b|\$\{)")
_HOST = re.compile(r"\bhost(?=(?:[1-9]|\$\w+):)")
# The name of a host in a certificate.
_CERTIFIED = re.compile(r"\bDNS:host(?=[1-9]\b)")
_DIRECTORY = re.compile(r"(?:(?<![\w./}-])|(?<=file://))(?=/(?:var/lib|etc)/barnabas\b|/data\b)")

_REGISTRY = "http://127.0.0.1:8081"

# A broker or cluster that is started without an address takes the port of the page.
_BARNABAS = """#!/bin/sh
case "$*" in
*--listen*|*.properties*|*--base-port*|*" -p "*) ;;
"start"*) shift; set -- start --listen 127.0.0.1:{port} "$@" ;;
"cluster start"*) shift 2; set -- cluster start --base-port {port} "$@" ;;
esac
exec {command} "$@"
"""


class Surroundings:
    """One directory and one set of free ports, for one section of a page.

    Args:
        directory: an empty one, in which the commands run.
        python: the interpreter whose Barnabas is used.
        commands: other commands that the page uses, with the words that run them.
        bootstrap: a broker that the page takes as running at 127.0.0.1:9092.
        registry: a schema registry that the page takes as running at 127.0.0.1:8081.
    """

    def __init__(
        self,
        directory: Path,
        python: str = sys.executable,
        commands: Mapping[str, Sequence[str]] | None = None,
        bootstrap: str | None = None,
        registry: str | None = None,
    ) -> None:
        self.directory = directory
        self.python = python
        self._bootstrap = bootstrap
        self._registry = registry
        self._thousands = _free_thousands()
        self._commands = directory / ".bin"
        self._commands.mkdir(parents=True)
        (directory / "examples").symlink_to(ROOT / "examples")
        # A page that asks for it runs only where the tests may do the same without it.
        self._add_command("sudo", '#!/bin/sh\nexec "$@"\n')
        for name, words in (commands or {}).items():
            self._add_command(name, f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        barnabas = shlex.join([python, "-m", "barnabas.cli.main"])
        port = f"{self._thousands}092"
        self._add_command("barnabas", _BARNABAS.format(port=port, command=barnabas))

    def adapt(self, text: str) -> str:
        """Return text of the page with the addresses and directories of this machine."""
        if self._bootstrap is not None:
            text = text.replace("127.0.0.1:9092", self._bootstrap)
        if self._registry is not None:
            text = text.replace(_REGISTRY, self._registry)
        text = _CERTIFIED.sub("IP:127.0.0.", text)
        text = _HOST.sub("127.0.0.", text)
        text = _PORT.sub(str(self._thousands), text)
        return _DIRECTORY.sub(str(self.directory), text)

    def environment(self) -> dict[str, str]:
        """Return the variables that the commands see; terminals have 80 columns, no colors."""
        path = [str(self._commands), str(Path(self.python).parent), os.environ["PATH"]]
        return {
            **os.environ,
            "PATH": os.pathsep.join(path),
            "HOME": str(self.directory),
            "BARNABAS_BOOTSTRAP": self.adapt("127.0.0.1:9092"),
            "COLUMNS": "80",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def _add_command(self, name: str, script: str) -> None:
        path = self._commands / name
        path.write_text(script)
        path.chmod(0o755)


def _free_thousands() -> int:
    offered = list(_THOUSANDS)
    random.SystemRandom().shuffle(offered)
    for thousands in offered:
        if all(is_free(1000 * thousands + port) for port in _PORTS):
            return thousands
    raise AssertionError("no ports are free")
