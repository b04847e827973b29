"""A Java program that runs beside a test; its output is read continuously."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

START_TIMEOUT_S = 180.0


class JavaApplication:
    """A running process with its output in a file; a context manager that kills it.

    Args:
        command: all words, `java` first.
        log_file: the file to which its standard output and error are appended.
    """

    def __init__(self, command: Sequence[str], log_file: Path) -> None:
        self._log_file = log_file
        with log_file.open("ab") as log:
            self._said_before = log.tell()
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=log_file.parent
            )

    def log(self) -> str:
        """The output of this process."""
        return self._log_file.read_bytes()[self._said_before :].decode(errors="replace")

    def await_said(self, pattern: str, timeout_s: float = START_TIMEOUT_S) -> re.Match[str]:
        """Wait until it has written this; the last such place."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = list(re.finditer(pattern, self.log(), re.MULTILINE))
            if found:
                return found[-1]
            assert self._process.poll() is None, f"it ended\n{self.log()[-6000:]}"
            assert time.monotonic() < deadline, f"{pattern} never came\n{self.log()[-6000:]}"
            time.sleep(0.05)

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def end_input(self, timeout_s: float = START_TIMEOUT_S) -> int:
        """Close its standard input and wait until it has ended; its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(timeout_s)

    def terminate(self, timeout_s: float = START_TIMEOUT_S) -> int:
        """Ask it to end, and wait; its exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """End it at once, as kill -9 does."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
