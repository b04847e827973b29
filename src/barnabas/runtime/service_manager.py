"""The door to the service manager that started the process: the protocol of systemd's sd_notify.

A unit with `Type=notify` passes the path of a datagram socket in NOTIFY_SOCKET. Each datagram has
lines of the form NAME=VALUE. With `WatchdogSec=` the unit also passes WATCHDOG_USEC, and systemd
ends a process that sends no WATCHDOG=1 for so long.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from barnabas.runtime.timer import Cancellable, Timer

__all__ = ["ServiceManager", "SilentServiceManager", "SystemdServiceManager", "service_manager"]

_log = logging.getLogger(__name__)

_SOCKET = "NOTIFY_SOCKET"
_WATCHDOG_USEC = "WATCHDOG_USEC"
_WATCHDOG_PID = "WATCHDOG_PID"
# Two signs of life within each limit, as sd_watchdog_enabled(3) advises.
_SIGNS_PER_LIMIT = 2
_USEC_PER_MS = 1000
# The queue of the socket is full: the manager is behind.
_RETRY_MS = 100.0
_STATUS_CHARACTERS_MAX = 512


class ServiceManager(Protocol):
    """Told what the process does."""

    def starting(self, status: str) -> None:
        """The process is not ready yet."""
        ...

    def ready(self, status: str) -> None:
        """The process serves from now on."""
        ...

    def stopping(self, status: str) -> None:
        """The process has begun to stop."""
        ...

    def failed(self, status: str) -> None:
        """The process is about to end; `status` says why."""
        ...


class SilentServiceManager:
    """There is no service manager that wants to know."""

    def starting(self, status: str) -> None:
        """Do nothing."""

    def ready(self, status: str) -> None:
        """Do nothing."""

    def stopping(self, status: str) -> None:
        """Do nothing."""

    def failed(self, status: str) -> None:
        """Do nothing."""


class SystemdServiceManager:
    """Sends datagrams; never waits for the manager, and never raises for its sake."""

    def __init__(self, address: str, watchdog_ms: float | None, timer: Timer) -> None:
        """Args:
        address: path of the socket; a leading "@" stands for the abstract namespace.
        watchdog_ms: the limit of the watchdog in milliseconds; None without one.
        timer: for the signs of life.
        """
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._sign_ms = None if watchdog_ms is None else watchdog_ms / _SIGNS_PER_LIMIT
        self._timer = timer
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        # Lines that the manager had no room for, by name; sent again until it has.
        self._unsent: dict[str, str] = {}
        self._watchdog: Cancellable | None = None

    def starting(self, status: str) -> None:
        """Show `status` while the process starts."""
        self._send({"STATUS": status})

    def ready(self, status: str) -> None:
        """Report that the process serves, and begin with the signs of life."""
        self._send({"READY": "1", "STATUS": status})
        self._live()

    def stopping(self, status: str) -> None:
        """Report that the process stops; the signs of life go on."""
        self._send({"STOPPING": "1", "STATUS": status})

    def failed(self, status: str) -> None:
        """Leave the reason in the output of `systemctl status`."""
        self._send({"STATUS": status})
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._socket.close()

    def _live(self) -> None:
        if self._sign_ms is not None:
            self._send({"WATCHDOG": "1"})
            self._watchdog = self._timer.call_later(self._sign_ms, self._live)

    def _send(self, lines: dict[str, str]) -> None:
        is_retrying = bool(self._unsent)
        self._unsent |= lines
        if not is_retrying:
            self._send_all()

    def _send_all(self) -> None:
        lines = [f"{name}={_one_line(value)}" for name, value in self._unsent.items()]
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except BlockingIOError:
            self._timer.call_later(_RETRY_MS, self._send_all)
            return
        except OSError as error:
            _log.warning("Service manager not told: socket=%s error=%s", self._address, error)
        self._unsent.clear()


def service_manager(timer: Timer, environment: MutableMapping[str, str]) -> ServiceManager:
    """Return the manager that started this process, if one asks for notifications.

    Its variables leave `environment`: a child process must not speak for this one.

    Args:
        timer: for the signs of life of the watchdog.
        environment: the variables of the process.
    """
    address = environment.pop(_SOCKET, "")
    limit = environment.pop(_WATCHDOG_USEC, "")
    watched_pid = environment.pop(_WATCHDOG_PID, "")
    if not address.startswith(("/", "@")):
        return SilentServiceManager()
    watchdog_ms = None
    if limit.isdecimal() and int(limit) > 0 and watched_pid in ("", str(os.getpid())):
        watchdog_ms = int(limit) / _USEC_PER_MS
    return SystemdServiceManager(address, watchdog_ms, timer)


def _one_line(text: str) -> str:
    """A newline would begin another variable."""
    return " ".join(text.split())[:_STATUS_CHARACTERS_MAX]
