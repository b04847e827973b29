"""Child processes that are forked from a template: a process that has imported the whole program.

A forked process shares the template's memory until one of them writes to a page. So it starts
without imports, and needs only the memory in which it differs.

A fork copies only the calling thread, and shares what the parent has opened. Therefore the template
has no thread, no event loop, no socket but the one to its parent, and no numbers drawn by chance.
It reads requests from that socket, forks, and reports the exit status of its children, whose parent
it is. It ends when its parent ends or closes the socket, and does nothing else.

Signals reach a child through a descriptor of its process (pidfd), so they cannot reach another
process that has got its id. Linux has these descriptors from 5.3 on.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from threading import RLock
from typing import IO, TYPE_CHECKING, Any, NoReturn

from barnabas.runtime.child_process import filled_pipe
from barnabas.runtime.process_table import set_process_title

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Limit for one answer. A template that has just started imports for a second, or a minute on a busy
# machine.
_START_TIMEOUT_S = 300.0
# The exit status of a child whose template has died, because only the template learns it.
STATUS_UNKNOWN = 255
_MESSAGE_BYTES_MAX = 4096
_DESCRIPTORS = 4
# Signals of the terminal and the service manager, which the template leaves to its parent.
_IGNORED = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))


def can_fork() -> bool:
    """Return whether this system has all calls for templates."""
    needed = (
        hasattr(os, "memfd_create"),
        hasattr(os, "pidfd_open"),
        hasattr(signal, "pidfd_send_signal"),
        hasattr(socket, "send_fds"),
    )
    if sys.platform != "linux" or not all(needed):
        return False
    try:
        # An old kernel or a container's rules may refuse the call.
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


class ForkedProcess:
    """A child of the template; see `ChildProcess`."""

    def __init__(self, template: _Template, pid: int, pidfd: int, outputs: tuple[int, int]) -> None:
        self._template = template
        self.pid = pid
        # Descriptor of the process, which is readable after its end.
        self._pidfd = pidfd
        # The exit status; None until it is known. Never changes afterwards.
        self._status: int | None = None
        self.stdout: IO[bytes] | None = os.fdopen(outputs[0], "rb", buffering=0)
        self.stderr: IO[bytes] | None = os.fdopen(outputs[1], "rb", buffering=0)

    def __del__(self) -> None:
        os.close(self._pidfd)

    def poll(self) -> int | None:
        """Return the exit status; None while the process runs."""
        if self._status is None and _is_readable(self._pidfd, 0):
            self._status = self._template.exit_status(self.pid)
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit status.

        Raises:
            subprocess.TimeoutExpired: the process still runs after this time.
        """
        if self._status is None and not _is_readable(self._pidfd, timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        status = self.poll()
        assert status is not None, f"process {self.pid} has ended without a status"
        return status

    def send_signal(self, sig: int) -> None:
        """Send a signal; do nothing if the process has ended."""
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, sig)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkStarter:
    """Starts processes as forks of a template. A template that has died is replaced.

    Args:
        command: the program that runs `serve_forks`. The number of its socket is added.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        # The running template; None before the first start and after `close`.
        self._template: _Template | None = None

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], standard_input: bytes = b""
    ) -> ForkedProcess:
        """Start a process; see `ProcessStarter`."""
        return self._living().fork(words, environment, standard_input)

    @property
    def parent_id(self) -> int:
        """Id of the template."""
        return self._living().pid

    def close(self) -> None:
        """End the template. Its children notice that as the end of their parent."""
        if self._template is not None:
            self._template.close()
            self._template = None

    def _living(self) -> _Template:
        if self._template is not None and self._template.has_ended():
            self.close()
        if self._template is None:
            self._template = _Template(self._command)
        return self._template


class _Template:
    """The parent's side of a template. Its methods may be called from any thread."""

    def __init__(self, command: Sequence[str]) -> None:
        self._control, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = RLock()
        # Exit statuses that were reported and not asked for yet, by process id.
        self._statuses: dict[int, int] = {}
        try:
            self._process = subprocess.Popen(
                [*command, str(its_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its_end.fileno()],
                process_group=0,
            )
        except OSError:
            self._control.close()
            raise
        finally:
            its_end.close()
        self.pid = self._process.pid

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def fork(
        self, words: Sequence[str], environment: Mapping[str, str], standard_input: bytes
    ) -> ForkedProcess:
        """Let the template fork.

        Raises:
            OSError: no process, pipe or descriptor is free, or the template has died.
        """
        request = json.dumps({"words": list(words), "environment": dict(environment)})
        with contextlib.ExitStack() as stack:
            content = os.memfd_create("barnabas-request", os.MFD_CLOEXEC)
            stack.callback(os.close, content)
            os.write(content, request.encode())
            source = filled_pipe(standard_input)
            stack.callback(os.close, source)
            ends, its_ends = [], []
            failed = stack.enter_context(contextlib.ExitStack())
            for _ in range(2):
                end, its_end = os.pipe()
                failed.callback(os.close, end)
                stack.callback(os.close, its_end)
                ends.append(end)
                its_ends.append(its_end)
            try:
                pid, pidfd = self._ask([content, source, *its_ends])
            except TimeoutError:
                # Its late answer would be taken for that to the next request.
                self._process.kill()
                raise
            failed.pop_all()
        return ForkedProcess(self, pid, pidfd, (ends[0], ends[1]))

    def _ask(self, descriptors: list[int]) -> tuple[int, int]:
        with self._lock:
            socket.send_fds(self._control, [b"fork"], descriptors)
            while True:
                answer, received = self._receive(_START_TIMEOUT_S)
                if answer is None:
                    raise OSError(0, "the process that forks the others has ended")
                if "error" in answer:
                    raise OSError(answer["error"], os.strerror(answer["error"]))
                if received:
                    return answer["pid"], received[0]
                self._note(answer)

    def _note(self, answer: dict[str, int]) -> None:
        if "status" in answer:
            self._statuses[answer["pid"]] = answer["status"]

    def exit_status(self, pid: int) -> int:
        """Return the exit status of a child that has ended, once; wait until it is reported."""
        with self._lock:
            while pid not in self._statuses:
                answer, _ = self._receive(None)
                if answer is None:
                    return STATUS_UNKNOWN
                self._note(answer)
            return self._statuses.pop(pid)

    def _receive(self, timeout_s: float | None) -> tuple[dict[str, int] | None, list[int]]:
        """Return the next message of the template with its descriptors; None if it has died.

        Raises:
            TimeoutError: no message has arrived in time.
        """
        if self._control.fileno() < 0:
            return None, []
        if not _is_readable(self._control.fileno(), timeout_s):
            raise TimeoutError("the process that forks the others does not answer")
        try:
            data, received, _, _ = socket.recv_fds(
                self._control, _MESSAGE_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            data, received = b"", []
        return (json.loads(data) if data else None), received

    def close(self) -> None:
        """End the template, which has nothing to lose."""
        self._process.kill()
        self._process.wait()
        with self._lock, self._control:
            # Keep the statuses that it has reported.
            while (answer := self._receive(0.0)[0]) is not None:
                self._note(answer)


def _is_readable(descriptor: int, timeout_s: float | None) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if timeout_s is None else max(0.0, timeout_s * 1000)))


# The template's side.


def serve_forks(control: int, main: Callable[[list[str]], object]) -> None:
    """Fork a child for each request, until the parent ends. Call this with everything imported.

    Args:
        control: the descriptor of the socket to the parent.
        main: runs in each child with its arguments; its end, or SystemExit, ends the child.
    """
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    woken, waking = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    server = _ForkServer(socket.socket(fileno=control), (woken, waking), main)
    # Objects that live forever. Without this, a collection in a child would write to all of them,
    # because a collection keeps its counts in the objects.
    gc.collect()
    gc.freeze()
    while server.serve():
        pass


class _ForkServer:
    """The loop of a template.

    Args:
        control: the socket to the parent.
        wakeups: the read and write end of a pipe that SIGCHLD writes to.
        main: what the children run.
    """

    def __init__(
        self,
        control: socket.socket,
        wakeups: tuple[int, int],
        main: Callable[[list[str]], object],
    ) -> None:
        self._control = control
        self._wakeups = wakeups
        self._main = main
        self._poller = select.poll()
        for descriptor in (control.fileno(), wakeups[0]):
            self._poller.register(descriptor, select.POLLIN)

    def serve(self) -> bool:
        """Wait for an event and handle it. Return whether the parent still lives."""
        ready = {descriptor for descriptor, _ in self._poller.poll()}
        if self._wakeups[0] in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakeups[0], _MESSAGE_BYTES_MAX)
            if not self._report_ended():
                return False
        if self._control.fileno() not in ready:
            return True
        data, received, _, _ = socket.recv_fds(self._control, _MESSAGE_BYTES_MAX, _DESCRIPTORS)
        return bool(data) and self._fork(received)

    def _report_ended(self) -> bool:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return True
            if not self._send({"pid": pid, "status": os.waitstatus_to_exitcode(status)}):
                return False

    def _send(self, answer: dict[str, int], descriptors: Sequence[int] = ()) -> bool:
        try:
            socket.send_fds(self._control, [json.dumps(answer).encode()], descriptors)
        except OSError:
            # The parent has ended.
            return False
        return True

    def _fork(self, received: list[int]) -> bool:
        try:
            pid = os.fork()
        except OSError as error:
            _close(received)
            return self._send({"error": error.errno or 0})
        if pid == 0:
            self._run_child(received)
        _close(received)
        try:
            # The child is not reaped before the next turn, so its id is still its own.
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            return self._send({"error": error.errno or 0})
        try:
            return self._send({"pid": pid}, [pidfd])
        finally:
            os.close(pidfd)

    def _run_child(self, received: list[int]) -> NoReturn:
        """Become a process that looks as if it had been started by its own command."""
        status: object = 1
        try:
            content, *streams = received
            for number, descriptor in enumerate(streams):
                os.dup2(descriptor, number)
            _close(streams)
            signal.set_wakeup_fd(-1)
            self._control.close()
            _close(self._wakeups)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number in _IGNORED:
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.setpgid(0, 0)
            words = _adopt(content)
            status = self._main(words) or 0
        except SystemExit as request:
            status = 0 if request.code is None else request.code
            if isinstance(status, str):
                sys.stderr.write(f"{status}\n")
                status = 1
        except BaseException:  # noqa: BLE001 - the interpreter would also print it
            traceback.print_exc()
        _end(status)


def _adopt(content: int) -> list[str]:
    """Take over the environment and the arguments of a request; return the arguments."""
    os.lseek(content, 0, os.SEEK_SET)
    with os.fdopen(content, "rb") as file:
        request: dict[str, Any] = json.loads(file.read())
    os.environ.clear()
    os.environ.update(request["environment"])
    words: list[str] = request["words"]
    sys.argv[1:] = words
    set_process_title(" ".join(["barnabas", *words]))
    return words


def _end(status: object) -> NoReturn:
    """End without the interpreter's clean-up, which would write to all shared pages."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status if isinstance(status, int) else 1)


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
