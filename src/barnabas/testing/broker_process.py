"""Servers as separate processes with a log file, and a broker on a free port."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .admin_requests import AdminEndpoint, AdminRequests
from .barnabas_command import barnabas_command
from .free_ports import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self


__all__ = [
    "BROKER_SETTINGS",
    "CLUSTER_SETTINGS",
    "BrokerProcess",
    "BrokerStartError",
]

# Broker keys of servers for tests, unless a test sets them. Consumer groups form at once
# instead of waiting three seconds for more members.
BROKER_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
CLUSTER_SETTINGS = {**BROKER_SETTINGS, "offsets.topic.num.partitions": "3"}
# Limits for processes that hang; long enough for a busy machine.
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0


class BrokerStartError(RuntimeError):
    """The process ended, or was not ready in time; the message contains its log."""


class BrokerDiedError(RuntimeError):
    """A broker ended without a request of the test; the message contains its log."""


class ServerProcess:
    """A process that prints "ready ..." on standard output when it is ready.

    Subclasses define the command (`_command`) and may detect readiness in another way
    (`await_ready`).

    Args:
        directory: working directory of the process, created if missing; has the log file.
        log_name: name of the log file, which collects standard error of all starts.
    """

    start_timeout_s = START_TIMEOUT_S
    stop_timeout_s = STOP_TIMEOUT_S

    def __init__(self, directory: Path, log_name: str) -> None:
        self.directory = directory
        self.log_file = directory / log_name
        self._process: subprocess.Popen[bytes] | None = None
        # The address in the ready line; empty before the first start.
        self.advertised_address = ""
        # Whether the process is stopped by SIGSTOP.
        self.is_paused = False
        # Whether the process has got SIGTERM. A second one would make a broker stop at once,
        # without closing its logs.
        self._is_stopping = False

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None, "the process does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process exists, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def has_died(self) -> bool:
        """Whether the process ended without `stop` or `kill`."""
        return self._process is not None and self._process.poll() is not None

    def launch(self) -> None:
        """Start the process without waiting; `await_ready` waits."""
        assert not self.is_running, "the process is already running"
        self.forget_process()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.prepare()
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=subprocess.PIPE if self._reports_ready() else log,
                stderr=log,
                cwd=self.directory,
                # With a buffered pipe, the selector would wait for bytes that are already in the
                # buffer.
                bufsize=0,
            )

    def await_ready(self, timeout_s: float | None = None) -> Self:
        """Wait until the process is ready; kill it if it is not ready in time.

        Raises:
            BrokerStartError: the process ended, or was not ready within `timeout_s`.
        """
        deadline = time.monotonic() + (self.start_timeout_s if timeout_s is None else timeout_s)
        try:
            self._await_ready(deadline)
        except BrokerStartError:
            self.kill()
            raise
        return self

    def start(self, timeout_s: float | None = None) -> Self:
        """Start the process and wait until it is ready.

        Raises:
            BrokerStartError: the process ended, or was not ready within `timeout_s`.
        """
        self.launch()
        return self.await_ready(timeout_s)

    def stop(self, timeout_s: float | None = None) -> int:
        """Send SIGTERM and wait; kill the process after `timeout_s`. Return its exit status."""
        return self._end(signal.SIGTERM, self.stop_timeout_s if timeout_s is None else timeout_s)

    def terminate(self) -> None:
        """Send SIGTERM without waiting; `stop` waits."""
        if self.is_running:
            self._is_stopping = True
            self._signal(signal.SIGTERM)
            self.resume()

    def send_kill(self) -> None:
        """Send SIGKILL without waiting; `kill` waits."""
        if self.is_running:
            self._signal(signal.SIGKILL)

    def kill(self) -> int:
        """Send SIGKILL and wait; return the exit status."""
        return self._end(signal.SIGKILL, self.stop_timeout_s)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait until the process ends by itself; return its exit status.

        Raises:
            subprocess.TimeoutExpired: the process still runs after `timeout_s`.
        """
        assert self._process is not None, "the process does not run"
        return self._process.wait(self.stop_timeout_s if timeout_s is None else timeout_s)

    def pause(self) -> None:
        """Suspend the process (SIGSTOP): its connections stay open, but it does not respond."""
        assert self.is_running, "the process is not running"
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Continue the process after `pause`."""
        if self.is_paused:
            self._signal(signal.SIGCONT)
            self.is_paused = False

    def restart(self) -> Self:
        """Stop the process if it runs, then start it with the same directory and ports."""
        if self.is_running:
            self.stop()
        return self.start()

    def restore(self) -> None:
        """Undo `pause`, `kill` and `stop`: resume or start the process.

        Raises:
            BrokerDiedError: the process had ended by itself. It runs again; the message contains
                its log.
            BrokerStartError: the process cannot be started.
        """
        self.resume()
        if self.is_running:
            return
        died = BrokerDiedError(f"the broker ended by itself\n{self.log()}")
        has_ended_by_itself = self.has_died
        self.start()
        if has_ended_by_itself:
            raise died

    def log(self) -> str:
        """Return the standard error of the process, over all starts."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def close(self) -> None:
        """Kill the process if it runs."""
        if self.is_running:
            self.kill()
        self.forget_process()

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

    def prepare(self) -> None:
        """Write the files that the command reads; called before each start."""

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _reports_ready(self) -> bool:
        """Whether standard output is a pipe with the ready line; otherwise it goes to the log."""
        return True

    def _await_ready(self, deadline: float) -> None:
        line = self._read_line(deadline)
        if line.split(" ")[0] != "ready":
            raise BrokerStartError(f"the process wrote {line!r}\n{self.log()}")
        self.advertised_address = line.removeprefix("ready").strip()
        self._read_after_ready(deadline)

    def _read_after_ready(self, deadline: float) -> None:
        """Read the lines that follow the ready line."""

    def _read_line(self, deadline: float) -> str:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        received = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in received:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise BrokerStartError(f"the process was not ready in time\n{self.log()}")
                piece = process.stdout.read(1)
                if not piece:
                    raise BrokerStartError(f"the process ended\n{self.log()}")
                received += piece
        return received.decode().strip()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _end(self, number: signal.Signals, timeout_s: float) -> int:
        process = self._process
        if process is None:
            return 0
        if number != signal.SIGTERM or not self._is_stopping:
            self._signal(number)
        # A suspended process handles SIGTERM only after SIGCONT.
        self.resume()
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        self.forget_process()
        return status

    def forget_process(self) -> None:
        """Drop the reference to an ended process and close its pipe."""
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        self.is_paused = self._is_stopping = False


_METRICS = "metrics "


class BrokerProcess(ServerProcess):
    """A `barnabas start` process; use a `with` block, or `start` and `stop`.

    Args:
        directory: directory of the data and the log file; a temporary directory when None.
        settings: broker keys, passed with `--set`.
        arguments: further command line arguments.
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
        super().__init__(Path(directory), "broker.log")
        self.data_directory = self.directory / "data"
        self.settings = dict(settings or {})
        self._arguments = list(arguments)
        self.host = HOST
        (self.port,) = free_ports(1)
        # HOST:PORT of `metrics.listener` if it is set, else empty.
        self.metrics_address = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.bootstrap!r})"

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, the value of bootstrap.servers."""
        return f"{self.host}:{self.port}"

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; its partitions have leaders when this returns.

        Raises:
            AdminRequestError: the topic exists already, or the broker refused it.
        """
        self.create_topics([name], partitions, configs)

    def create_topics(
        self, names: Sequence[str], partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create several topics at once; see `create_topic`."""
        with AdminRequests(self.admin_endpoint()) as requests:
            requests.create_topics(names, partitions, configs=configs)

    def admin_endpoint(self) -> AdminEndpoint:
        """Return a listener that permits to create topics."""
        return AdminEndpoint(self.host, self.port)

    def close(self) -> None:
        """Kill the broker if it runs; remove the directory if it is temporary."""
        super().close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _command(self) -> list[str]:
        command = [*barnabas_command(), "start", "--data-dir", str(self.data_directory)]
        if "listeners" not in self.settings:
            command += ["--listen", f"{self.host}:{self.port}"]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        command += ["--exit-with", str(os.getpid())]
        if self._temporary is not None:
            command += ["--remove-orphaned", str(self.directory)]
        return command + self._arguments

    def _read_after_ready(self, deadline: float) -> None:
        if "metrics.listener" in self.settings:
            self.metrics_address = self._read_line(deadline).removeprefix(_METRICS)
