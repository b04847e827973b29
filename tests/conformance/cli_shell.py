"""Runs `barnabas` commands as processes, with pipes or on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import uuid
from contextlib import suppress
from typing import Any

from click.testing import CliRunner

from barnabas.cli.group import group

SECONDS = 120
# Commands that run as separate processes: they need real files, or measure their own process.
SEPARATE_PROCESS = ("produce", "consume", "bench")


class Shell:
    """Runs commands against one broker; `topic` is a unique name."""

    def __init__(self, bootstrap: str) -> None:
        self.topic = f"cli-{uuid.uuid4().hex[:8]}"
        self.environment = {**os.environ, "BARNABAS_BOOTSTRAP": bootstrap}

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=self.environment,
            check=False,
        )

    def ok(self, *words: str, stdin: str = "") -> str:
        """Return the output of a command that must succeed; it runs in this process if possible."""
        run = self.run if words[0] in SEPARATE_PROCESS else self.run_in_process
        done = run(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *words: str) -> Any:
        """Run a command in this process, which is faster, and return its JSON output."""
        done = CliRunner().invoke(group, [*words, "--json"], env=self.environment)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def run_in_process(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command in this process, which avoids a start of Python."""
        done = CliRunner().invoke(group, list(words), input=stdin, env=self.environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "barnabas.cli.main", *words]

    def on_terminal(self, *words: str, columns: int = 80, **environment: str) -> str:
        """Return the output of the command on a terminal of this width."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        try:
            process = subprocess.Popen(
                self.command(*words),
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                env={**self.environment, "TERM": "xterm-256color", **environment},
            )
        finally:
            os.close(theirs)
        written = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other side was closed
                break
            if not piece:
                break
            written += piece
        os.close(ours)
        assert process.wait(SECONDS) == 0, written.decode()
        return written.decode()


class Terminal:
    """A command that runs on a terminal until it is closed."""

    def __init__(self, shell: Shell, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        os.set_blocking(self._ours, False)
        self._output = b""
        self._process = subprocess.Popen(
            shell.command(*words),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=shell.environment,
        )
        os.close(theirs)

    def output(self) -> str:
        """Return what the process has printed so far."""
        with suppress(BlockingIOError):
            while piece := os.read(self._ours, 65536):
                self._output += piece
        return self._output.decode()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)
