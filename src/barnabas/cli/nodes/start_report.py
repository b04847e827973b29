"""What a start reports: the addresses on standard output, or why it failed."""

from __future__ import annotations

import errno
import gc
import logging
import socket
import sys
from typing import TYPE_CHECKING

from barnabas.runtime.process import discard_standard_output

if TYPE_CHECKING:
    from barnabas.runtime.service_manager import ServiceManager

_log = logging.getLogger(__name__)

FAILED = 1


class StartError(Exception):
    """The reason why the broker does not start, as a message for the operator."""


def print_ready(address: str, metrics_address: str | None) -> None:
    """Print the addresses on standard output."""
    # The logs and the metadata also live as long as the broker.
    gc.freeze()
    try:
        sys.stdout.write(f"ready {address}\n")
        if metrics_address is not None:
            sys.stdout.write(f"metrics {metrics_address}\n")
        sys.stdout.flush()
    except OSError as error:
        # A broker does not need its output.
        discard_standard_output()
        _log.warning("Standard output cannot be written: %s", error.strerror)


def with_remedy(error: OSError) -> str:
    """Return the message for an error of the system, with what to do."""
    remedies = {
        errno.EADDRINUSE: "stop the program that uses this address, or use another port: --listen "
        "HOST:PORT (port 0 takes any free port)",
        errno.EADDRNOTAVAIL: "this machine does not have this address; use another one: --listen "
        "HOST:PORT",
        errno.EACCES: "use a directory or port for which this user has permission",
        errno.EPERM: "use a directory or port for which this user has permission",
        errno.ENOTDIR: "a file with this name exists; use another directory: --data-dir DIR",
        errno.EEXIST: "a file with this name exists; use another directory: --data-dir DIR",
        errno.EROFS: "the file system is read-only; use another directory: --data-dir DIR",
        errno.ENOSPC: "free disk space, or use a directory on another disk: --data-dir DIR",
    }
    remedy = remedies.get(error.errno or 0)
    if isinstance(error, socket.gaierror):
        remedy = "use a name or address of this machine: --listen HOST:PORT"
    reason = error.strerror or str(error)
    text = f"{error.filename}: {reason}" if error.filename else reason
    return f"{text}; {remedy}" if remedy else text


def fail_start(text: str, manager: ServiceManager | None = None) -> int:
    """Report why the process cannot run. Return its exit status."""
    sys.stderr.write(f"barnabas: {text}\n")
    if manager is not None:
        manager.failed(text)
    return FAILED
