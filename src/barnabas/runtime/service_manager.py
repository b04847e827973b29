"""The interface to the service manager of the process, by the protocol of systemd's sd_notify.

A unit with `Type=notify` passes the path of a datagram socket in NOTIFY_SOCKET. Each datagram has
lines of the form NAME=VALUE. With `WatchdogSec=` the unit also passes WATCHDOG_USEC. systemd ends a
process that sends no WATCHDOG=1 within that time.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from barnabas.runtime.clock import Cancellable, Timer

_log = logging.getLogger(__name__)

_SOCKET = "NOTIFY_SOCKET"
_WATCHDOG_USEC = "WATCHDOG_USEC"
_WATCHDOG_PID = "WATCHDOG_PID"
# Two watchdog messages within each limit, as sd_watchdog_enabled(3) advises.
_MESSAGES_PER_LIMIT = 2
_USEC_PER_MS = 1000
# Delay before a retry when the socket's queue is full.
_RETRY_MS = 100.0
_STATUS_CHARACTERS_MAX = 512
# The message that resets the watchdog.
WATCHDOG_LINE = b"WATCHDOG=1"


class ServiceManager(Protocol):
    """Receives the status of the process."""

    @property
    def watchdog_limit_ms(self) -> float | None:
        """Time within which the manager expects a sign of life, ms; None without a limit."""
        ...

    def watch(self, is_alive: Callable[[], bool]) -> None:
        """Give signs of life only while `is_alive` returns true."""
        ...

    def starting(self, status: str) -> None:
        """Report that the process is starting."""
        ...

    def ready(self, status: str) -> None:
        """Report that the process serves requests from now on."""
        ...

    def stopping(self, status: str) -> None:
        """Report that the process has begun to stop."""
        ...

    def failed(self, status: str) -> None:
        """Report that the process is about to end, with the reason in `status`."""
        ...


class SilentServiceManager:
    """Used when no service manager asks for notifications."""

    @property
    def watchdog_limit_ms(self) -> float | None:
        """No limit."""
        return None

    def watch(self, is_alive: Callable[[], bool]) -> None:
        """Do nothing."""

    def starting(self, status: str) -> None:
        """Do nothing."""

    def ready(self, status: str) -> None:
        """Do nothing."""

    def stopping(self, status: str) -> None:
        """Do nothing."""

    def failed(self, status: str) -> None:
        """Do nothing."""


class SystemdServiceManager:
    """Sends datagrams. It never blocks, and never raises an error of the socket."""

    def __init__(self, address: str, watchdog_ms: float | None, timer: Timer) -> None:
        """Create the socket.

        Args:
            address: path of the socket; a leading "@" means the abstract namespace.
            watchdog_ms: the time limit of the watchdog, ms; None without a watchdog.
            timer: schedules the watchdog messages.
        """
        # Whether a watchdog message may be sent now. Replaced by `watch`.
        self._is_alive: Callable[[], bool] = _always
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_interval_ms = (
            None if watchdog_ms is None else watchdog_ms / _MESSAGES_PER_LIMIT
        )
        self._timer = timer
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        # Lines that did not fit into the socket's queue, by name. They are sent again.
        self._unsent: dict[str, str] = {}
        self._watchdog: Cancellable | None = None

    @property
    def watchdog_limit_ms(self) -> float | None:
        """The time limit of the watchdog, ms; None without a watchdog."""
        interval_ms = self._watchdog_interval_ms
        return None if interval_ms is None else interval_ms * _MESSAGES_PER_LIMIT

    def watch(self, is_alive: Callable[[], bool]) -> None:
        """Send watchdog messages only while `is_alive` returns true."""
        self._is_alive = is_alive

    def starting(self, status: str) -> None:
        """Report `status` while the process starts."""
        self._send({"STATUS": status})

    def ready(self, status: str) -> None:
        """Report that the process serves requests, and start the watchdog messages."""
        self._send({"READY": "1", "STATUS": status})
        self._send_watchdog()

    def stopping(self, status: str) -> None:
        """Report that the process stops. The watchdog messages continue."""
        self._send({"STOPPING": "1", "STATUS": status})

    def failed(self, status: str) -> None:
        """Report the reason, which `systemctl status` shows, and close the socket."""
        self._send({"STATUS": status})
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._socket.close()

    def _send_watchdog(self) -> None:
        if self._watchdog_interval_ms is not None:
            if self._is_alive():
                self._send({"WATCHDOG": "1"})
            self._watchdog = self._timer.call_later(self._watchdog_interval_ms, self._send_watchdog)

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
            _log.warning(
                "Notification of the service manager failed: socket=%s error=%s",
                self._address,
                error,
            )
        self._unsent.clear()


def service_manager(timer: Timer, environment: MutableMapping[str, str]) -> ServiceManager:
    """Return the manager that started this process, if it asks for notifications.

    Its variables are removed from `environment`, so that child processes do not send notifications.

    Args:
        timer: schedules the watchdog messages.
        environment: the environment variables of the process.
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


def manager_environment(address: str, limit_ms: float) -> dict[str, str]:
    """Return the variables with which a process sends its notifications to `address`.

    Args:
        address: path of the socket; a leading "@" means the abstract namespace.
        limit_ms: the time limit of the watchdog, ms.
    """
    return {_SOCKET: address, _WATCHDOG_USEC: str(int(limit_ms * _USEC_PER_MS))}


def _always() -> bool:
    return True


def _one_line(text: str) -> str:
    """Return the text as one line, because a newline would start another variable."""
    return " ".join(text.split())[:_STATUS_CHARACTERS_MAX]
