"""Terminals in which the commands of a page run: a shell, and a window for each server."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from waiting import eventually

# Limits for what hangs.
COMMAND_TIMEOUT_S = 100.0
END_TIMEOUT_S = 30.0
SEEN_TIMEOUT_S = 90.0
# Written by the shell behind each command, with the exit status in between.
_MARK = "\x1d"


class CommandEndError(AssertionError):
    """A shell ended or hangs; the message has the output."""


def _open_terminal(environment: Mapping[str, str]) -> tuple[int, int]:
    ours, theirs = pty.openpty()
    columns = int(environment["COLUMNS"])
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    return ours, theirs


class Shell:
    """One bash that runs commands in order; variables and background jobs stay."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._count = 0
        self._ours, self._theirs = _open_terminal(environment)
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=self._theirs,
            stderr=self._theirs,
            pass_fds=(self._theirs,),
            start_new_session=True,
        )

    def run_command(self, text: str) -> tuple[str, int]:
        """Run a command on the terminal; return all that it prints, and its exit status."""
        return self._run(f"source {self._script(text)} < /dev/null")

    def run_script(self, text: str) -> tuple[str, str, int]:
        """Run lines that end at the first failure; return output, errors and exit status."""
        script = self._script(text)
        output, errors = script.with_suffix(".out"), script.with_suffix(".err")
        words = f"set -e; source {script} < /dev/null > {output} 2> {errors}; set +e"
        try:
            _, status = self._run(words)
        except CommandEndError as ended:
            raise CommandEndError(f"{ended}\n{errors.read_text()}\n{output.read_text()}") from None
        return output.read_text(), errors.read_text(), status

    def close(self) -> None:
        """End the shell and its background processes."""
        end_group(self._process)
        os.close(self._ours)
        os.close(self._theirs)

    def _script(self, text: str) -> Path:
        self._count += 1
        path = self._directory / ".bin" / f"block-{self._count}.sh"
        path.write_text(text if text.endswith("\n") else f"{text}\n")
        return path

    def _run(self, words: str) -> tuple[str, int]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{words}; printf '\\035%s\\035' $?\n".encode())
        self._process.stdin.flush()
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        written = b""
        while written.count(_MARK.encode()) < 2:
            readable, _, _ = select.select([self._ours], [], [], 0.2)
            if readable:
                written += os.read(self._ours, 65536)
            elif self._process.poll() is not None:
                raise CommandEndError(f"the shell ended: {written.decode(errors='replace')}")
            elif time.monotonic() > deadline:
                raise CommandEndError(f"it hangs: {written.decode(errors='replace')}")
        output, status, _ = written.decode(errors="replace").split(_MARK, 2)
        return output, int(status)


class Window:
    """A terminal of its own for a command that goes on until it is told to stop."""

    def __init__(self, text: str, directory: Path, environment: Mapping[str, str]) -> None:
        self._text = text
        self._written = b""
        self._ours, theirs = _open_terminal(environment)
        self._process = subprocess.Popen(
            ["bash", "-c", text],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def written(self) -> str:
        """All that the command has printed so far."""
        return self._written.decode(errors="replace")

    def wait_for(self, seen: Callable[[str], bool]) -> None:
        """Wait until the output pleases.

        Raises:
            CommandEndError: the command ended before.
        """

        def look() -> bool:
            ended = self._process.poll() is not None
            if ended:
                self._reader.join(END_TIMEOUT_S)
            if seen(self.written):
                return True
            if ended:
                raise CommandEndError(f"{self._text}\nended, and printed:\n{self.written}")
            return False

        eventually(look, lambda: f"{self._text}\nprinted only:\n{self.written}", SEEN_TIMEOUT_S)

    def interrupt(self) -> None:
        """Press Ctrl-C, and wait until the command ends."""
        os.killpg(self._process.pid, signal.SIGINT)
        self._process.wait(END_TIMEOUT_S)
        self._reader.join(END_TIMEOUT_S)

    def close(self) -> None:
        """End the command if it runs."""
        end_group(self._process)
        self._reader.join(END_TIMEOUT_S)
        os.close(self._ours)

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # the command closed the terminal
                return
            if not piece:
                return
            self._written += piece


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ask the processes of a session to stop, then kill those that remain."""
    if process.stdin is not None:
        process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(END_TIMEOUT_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
