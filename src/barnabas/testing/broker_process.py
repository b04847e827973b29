"""A real broker process on a free port: started, stopped, killed, restarted on its directory."""

from __future__ import annotations

import contextlib
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

_READY = "ready "
_METRICS = "metrics "
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


class BrokerStartError(RuntimeError):
    """The process ended, or did not answer in time; the message has its log."""


class BrokerProcess:
    """One `barnabas start`, as a context manager or by `start` and `stop`.

    Args:
        directory: where data and the log file lie; a temporary one when None.
        settings: broker keys, as `--set` takes them.
        arguments: more words for the command line.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="barnabas-")
            directory = self._temporary.name
        self.directory = Path(directory)
        self.data_directory = self.directory / "data"
        self.log_file = self.directory / "broker.log"
        self.settings = dict(settings or {})
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        # Set by the first start; later ones take the same port.
        self.host = "127.0.0.1"
        self.port = 0
        # HOST:PORT of `metrics.listener`, if that is set.
        self.metrics_address = ""

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, what clients call bootstrap.servers."""
        assert self.port, "the broker was never started"
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = START_TIMEOUT_S) -> BrokerProcess:
        """Start and wait until it answers.

        Raises:
            BrokerStartError: it ended, or took longer than `timeout_s`.
        """
        assert not self.is_running, "the broker runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.directory,
                # A buffered pipe would keep what the selector then waits for.
                bufsize=0,
            )
        try:
            address = self._await_ready(time.monotonic() + timeout_s)
        except BrokerStartError:
            self.kill()
            raise
        self.host, _, port = address.rpartition(":")
        self.port = int(port)
        return self

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Ask it to stop, and wait; returns its exit status. Killed when it takes too long."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> int:
        """End it at once, as kill -9 does; returns its exit status."""
        return self._end(signal.SIGKILL, STOP_TIMEOUT_S)

    def restart(self) -> BrokerProcess:
        """Stop if it runs, then start on the same directory and port."""
        if self.is_running:
            self.stop()
        return self.start()

    def log(self) -> str:
        """What it has written to standard error, over all its lives."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    def close(self) -> None:
        """Kill it if it runs, and remove the directory if it is temporary."""
        if self.is_running:
            self.kill()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        if not self.is_running:
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _command(self) -> list[str]:
        words = [sys.executable, "-m", "barnabas.cli.main", "start"]
        words += ["--listen", f"{self.host}:{self.port}", "--data-dir", str(self.data_directory)]
        for key, value in self.settings.items():
            words += ["--set", f"{key}={value}"]
        return words + self._arguments

    def _await_ready(self, deadline: float) -> str:
        line = self._read_line(deadline)
        if not line.startswith(_READY):
            raise BrokerStartError(f"the broker said {line!r}\n{self.log()}")
        if "metrics.listener" in self.settings:
            self.metrics_address = self._read_line(deadline).removeprefix(_METRICS)
        return line.removeprefix(_READY)

    def _read_line(self, deadline: float) -> str:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        received = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in received:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise BrokerStartError(f"the broker did not answer in time\n{self.log()}")
                piece = process.stdout.read(1)
                if not piece:
                    raise BrokerStartError(f"the broker ended\n{self.log()}")
                received += piece
        return received.decode().strip()

    def _end(self, number: signal.Signals, timeout_s: float) -> int:
        process = self._process
        if process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._process = None
        return status
