"""A Java program that runs during a test; its output can be read while it runs."""

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
        command: the complete command, which begins with `java`.
        log_file: the file to which its standard output and error are appended.
    """

    def __init__(self, command: Sequence[str], log_file: Path) -> None:
        self._log_file = log_file
        with log_file.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=log_file.parent
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def log(self) -> str:
        """Return the output of this process."""
        return self._log_file.read_bytes()[self._log_start :].decode(errors="replace")

    def await_output(self, pattern: str, timeout_s: float = START_TIMEOUT_S) -> re.Match[str]:
        """Wait until the output matches a pattern, and return the last match."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = list(re.finditer(pattern, self.log(), re.MULTILINE))
            if found:
                return found[-1]
            assert self._process.poll() is None, f"the process ended\n{self.log()[-6000:]}"
            assert time.monotonic() < deadline, f"no output matches {pattern}\n{self.log()[-6000:]}"
            time.sleep(0.05)

    def write_line(self, line: str) -> None:
        """Write a line to the standard input of the process."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def end_input(self, timeout_s: float = START_TIMEOUT_S) -> int:
        """Close the standard input, wait for the end of the process, and return its status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(timeout_s)

    def terminate(self, timeout_s: float = START_TIMEOUT_S) -> int:
        """Send SIGTERM, wait for the end of the process, and return its status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout_s)

    def pause(self) -> None:
        """Send SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the process."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
