"""Child processes that run the same program with other arguments, and their start by subprocess.

`forked_process` starts them faster and with shared memory, where the system allows it. Both have
the same interface. It is that of `subprocess.Popen`, as far as both have it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

# A pipe takes this number of bytes before its reader has started.
INPUT_BYTES_MAX = 64 * 1024
# The interval of checks for the exit of a killed child (s).
_REAP_S = 0.01


class ChildProcess(Protocol):
    """A running or ended child process."""

    # Id of the process. After its end, the system may use the id again.
    pid: int
    # Ends of pipes to read from, without a buffer. A subprocess may lack them; these have them.
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit status.

        Args:
            timeout: seconds; None for no limit.

        Raises:
            subprocess.TimeoutExpired: the process still runs after this time.
        """
        ...

    def send_signal(self, sig: int) -> None:
        """Send a signal; do nothing if the process has ended."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM."""
        ...

    def kill(self) -> None:
        """Send SIGKILL."""
        ...


class ProcessStarter(Protocol):
    """Starts child processes of one program."""

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], standard_input: bytes = b""
    ) -> ChildProcess:
        """Start a process in its own process group, with pipes as its output and errors.

        Args:
            words: arguments of the program.
            environment: all its variables.
            standard_input: what it can read, at most `INPUT_BYTES_MAX`.

        Raises:
            OSError: no process could be started.
        """
        ...

    @property
    def parent_id(self) -> int:
        """Id of the process whose child the next process will be.

        Raises:
            OSError: this process cannot be started.
        """
        ...

    def close(self) -> None:
        """End what belongs to the starter itself."""
        ...


class SubprocessStarter:
    """Starts each process as a new interpreter, by `subprocess`.

    Args:
        command: the program, to which the arguments of each process are added.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], standard_input: bytes = b""
    ) -> subprocess.Popen[bytes]:
        """Start a process."""
        source = filled_pipe(standard_input)
        try:
            return subprocess.Popen(
                [*self._command, *words],
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                process_group=0,
                bufsize=0,
            )
        finally:
            os.close(source)

    @property
    def parent_id(self) -> int:
        """Id of this process."""
        return os.getpid()

    def close(self) -> None:
        """Do nothing, because the starter has no process of its own."""


def filled_pipe(content: bytes) -> int:
    """Return the read end of a pipe that has this content and then ends.

    Raises:
        OSError: no descriptor is free.
    """
    assert len(content) <= INPUT_BYTES_MAX, f"{len(content)} bytes do not fit into a pipe"
    source, sink = os.pipe()
    try:
        # A new pipe has room for it, so the write does not wait.
        os.write(sink, content)
    except OSError:
        os.close(source)
        raise
    finally:
        os.close(sink)
    return source


def start_python(main: str, *arguments: int, **pipes: Any) -> subprocess.Popen[bytes]:
    """Start a child process that runs a statement of Python with the modules of this process.

    Args:
        main: The statement.
        arguments: Its `sys.argv[1:]`.
        pipes: Further arguments of `subprocess.Popen`.

    Raises:
        OSError: No process could be started.
    """
    return subprocess.Popen(
        [sys.executable, "-c", main, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        # An own process group, so that Ctrl-C at the terminal reaches only the parent.
        process_group=0,
        **pipes,
    )


def reap(process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop) -> None:
    """Collect the exit status of a killed process without blocking the loop."""
    if process.poll() is None:
        if loop.is_closed() or not loop.is_running():
            process.wait()
        else:
            loop.call_later(_REAP_S, reap, process, loop)
