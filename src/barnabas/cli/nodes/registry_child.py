"""The registry that `barnabas start --registry` runs beside the broker, in a process of its own.

The broker's event loop and memory are free of it. The child gets its properties over standard
input, because they may contain passwords. It ends with the broker. When it ends by itself after it
was ready, it is started again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.nodes.start_report import StartError
from barnabas.runtime.process import discard_standard_output, process_id
from barnabas.settings.key import ConfigError
from barnabas.settings.properties import format_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.runtime.clock import Timer
    from barnabas.runtime.loop import ProcessControl, Runtime

PREFIX = "barnabas.registry."
LISTENER_KEY = f"{PREFIX}listener"
# Keys that the registry has from the broker, unless it has its own.
_SHARED = (
    *("super.users", "allow.everyone.if.no.acl.found"),
    "sasl.oauthbearer.sub.claim.name",
)
# Variables with which a user chooses a cluster and its settings (cli/common/profiles).
_CHOICES = ("BARNABAS_BOOTSTRAP", "BARNABAS_PROFILE", "BARNABAS_CONFIG")
_SERVERS = "kafkastore.bootstrap.servers"
# Interval of the checks before the registry is ready, and afterwards.
_START_CHECK_MS, _CHECK_MS = 50.0, 500.0
_FIRST_RETRY_MS, _RETRY_MS_MAX = 1_000.0, 30_000.0
_STOP_S = 5.0
_READ_BYTES = 4096


class RegistryOptions(NamedTuple):
    """What the child is started with."""

    properties: Mapping[str, str]
    log_format: str
    log_level: str


def take_registry_properties(properties: dict[str, str]) -> dict[str, str]:
    """Remove the registry's keys from those of a broker; return them with their own names.

    An empty result means that no registry is wanted.

    Raises:
        ConfigError: There are keys of a registry without an address.
    """
    found = {
        name.removeprefix(PREFIX): properties.pop(name)
        for name in list(properties)
        if name.startswith(PREFIX)
    }
    if not found:
        return {}
    listener = found.pop("listener", None)
    if not listener:
        raise ConfigError(LISTENER_KEY, None, "HOST:PORT, as other keys of the registry are given")
    found["listeners"] = listener if "://" in listener else f"http://{listener}"
    for name in _SHARED:
        if name in properties:
            found.setdefault(name, properties[name])
    return found


def registry_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the child: none of those that choose a cluster for commands."""
    return {name: value for name, value in variables.items() if name not in _CHOICES}


class RegistryChild:
    """Starts the registry, and watches it.

    Args:
        options: What the child is started with.
        timer: Checks the child.
        on_ready: Called with the URL, each time the registry is ready.
        on_failed: Called with the reason, if the registry ends before it was ready once.
    """

    def __init__(
        self,
        options: RegistryOptions,
        timer: Timer,
        on_ready: Callable[[str], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self._options = options
        self._timer = timer
        self._on_ready = on_ready
        self._on_failed = on_failed
        # The address of the broker; empty before `start`.
        self._broker = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._output = b""
        # Whether the present process is ready, and whether one was.
        self._is_ready = False
        self._was_ready = False
        self._is_stopping = False
        self._retry_ms = _FIRST_RETRY_MS

    def start(self, broker: str) -> None:
        """Start the registry for a broker that is ready.

        Args:
            broker: HOST:PORT.
        """
        self._broker = broker
        self._spawn()

    def _spawn(self) -> None:
        if self._is_stopping:
            return
        properties = {_SERVERS: self._broker, **self._options.properties}
        try:
            process = self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "barnabas", "registry", "-"),
                    *("--exit-with", str(process_id())),
                    *("--log-format", self._options.log_format),
                    *("--log-level", self._options.log_level),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=registry_environment(os.environ),
                # An own process group, so that Ctrl-C at the terminal reaches only the broker.
                process_group=0,
            )
        except OSError as error:
            self._on_ended(f"the registry cannot be started: {error.strerror}")
            return
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._output, self._is_ready = b"", False
        # The properties fit into the pipe's buffer.
        process.stdin.write(format_properties(properties).encode("latin-1"))
        process.stdin.close()
        self._timer.call_later(_START_CHECK_MS, self._check)

    def _check(self) -> None:
        process = self._process
        if process is None or self._is_stopping:
            return
        if not self._is_ready:
            self._read(process)
        status = process.poll()
        if status is None:
            interval_ms = _CHECK_MS if self._is_ready else _START_CHECK_MS
            self._timer.call_later(interval_ms, self._check)
            return
        self._process = None
        self._on_ended(f"the registry has ended with exit status {status}")

    def _on_ended(self, words: str) -> None:
        if not self._was_ready:
            self._on_failed(words)
            return
        sys.stderr.write(f"barnabas: {words}; it is started again\n")
        self._timer.call_later(self._retry_ms, self._spawn)
        self._retry_ms = min(2 * self._retry_ms, _RETRY_MS_MAX)

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Read the line with which the registry announces its address."""
        assert process.stdout is not None
        self._output += process.stdout.read(_READ_BYTES) or b""
        line, end, _ = self._output.partition(b"\n")
        word, _, url = line.decode("utf-8", "replace").partition(" ")
        if end and word == "ready":
            self._is_ready = self._was_ready = True
            self._retry_ms = _FIRST_RETRY_MS
            self._on_ready(url)

    def stop(self, on_stopped: Callable[[], None]) -> None:
        """End the registry, while the broker still serves it; then call `on_stopped`."""
        self._is_stopping = True
        process = self._process
        if process is None:
            on_stopped()
            return
        process.terminate()
        self._await_end(process, _STOP_S * 1000, on_stopped)

    def _await_end(
        self, process: subprocess.Popen[bytes], left_ms: float, on_stopped: Callable[[], None]
    ) -> None:
        if process.poll() is None and left_ms > 0:
            left_ms -= _START_CHECK_MS
            self._timer.call_later(
                _START_CHECK_MS, lambda: self._await_end(process, left_ms, on_stopped)
            )
            return
        self.kill()
        on_stopped()

    def kill(self) -> None:
        """End the registry at once, because the broker ends."""
        process, self._process = self._process, None
        self._is_stopping = True
        if process is not None:
            if process.poll() is None:
                process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def registry_child(
    options: RegistryOptions, runtime: Runtime, control: ProcessControl
) -> RegistryChild:
    """Return the registry of this process. It is not started yet."""

    def on_ready(url: str) -> None:
        try:
            sys.stdout.write(f"registry {url}\n")
            sys.stdout.flush()
        except OSError:
            discard_standard_output()

    def on_failed(reason: str) -> None:
        control.fail(StartError(reason))

    return RegistryChild(options, runtime.timer, on_ready, on_failed)
