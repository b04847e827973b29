"""Files of one run of `barnabas start`: the ready file and the temporary data directory.

The temporary directory is removed when the broker ends, unless by SIGKILL. With --exit-with, the
broker ends with another process. It then needs no clean stop if its data is deleted anyway.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from barnabas.runtime.disk import RealDisk
from barnabas.runtime.process import HANGUP
from barnabas.runtime.system_calls import request_parent_death_signal

if TYPE_CHECKING:
    from barnabas.cli.nodes.start_options import StartOptions
    from barnabas.runtime.loop import ProcessControl, Runtime
    from barnabas.runtime.process import ParentWatch

_NAME = "barnabas-temporary-"


class StartFiles:
    """Creates the files that `options` request, and removes them in `close`.

    Raises:
        OSError: The temporary directory cannot be created, or the old ready file not removed.
    """

    def __init__(self, options: StartOptions) -> None:
        self._options = options
        self._watch: ParentWatch | None = None
        # The data directory that was created here; None if there is none.
        self.temporary_directory: str | None = None
        self._remove_ready_file()
        if options.temporary:
            self.temporary_directory = _make_directory()

    def watch(self, runtime: Runtime, control: ProcessControl) -> None:
        """Make the process end when the watched process ends.

        With --temporary, it also ends when the terminal closes.
        """
        options = self._options
        is_hangup_ignored = signal.getsignal(HANGUP) is signal.SIG_IGN
        if options.temporary and not is_hangup_ignored:
            control.on_signal(HANGUP, control.request_stop)
        if options.exit_with is None:
            return
        from barnabas.runtime.process import WAKING_SIGNAL, ParentWatch

        throws_away = options.temporary or options.remove_orphaned is not None
        self._watch = ParentWatch(
            runtime.timer,
            options.exit_with,
            control.finish if throws_away else control.request_stop,
        )
        control.on_signal(WAKING_SIGNAL, self._watch.check)
        self._watch.start()

    def on_ready(self, address: str) -> None:
        """Write the ready file; ask the kernel for a signal when the parent process ends.

        Raises:
            OSError: The file cannot be written.
        """
        path = self._options.ready_file
        if path is not None:
            # The readers of the file run now, so the file need not survive a power loss.
            disk = RealDisk()
            disk.write_atomically(disk.absolute(path), f"{address}\n".encode(), sync=False)
        if self._watch is not None:
            from barnabas.runtime.process import WAKING_SIGNAL

            request_parent_death_signal(WAKING_SIGNAL)
            # The parent may have ended before the request for a signal.
            self._watch.check()

    def close(self) -> None:
        """Remove the ready file and the temporary directory.

        If the watched process has ended, also remove the directory of --remove-orphaned.
        """
        self._remove_ready_file()
        left = [self.temporary_directory]
        if self._watch is not None and self._watch.has_ended:
            left.append(self._options.remove_orphaned)
        for directory in left:
            if directory is not None:
                import shutil

                shutil.rmtree(directory, ignore_errors=True)

    def _remove_ready_file(self) -> None:
        path = self._options.ready_file
        if path is not None and RealDisk().exists(path):
            RealDisk().remove(path)


def _make_directory() -> str:
    """Create an empty directory for this user only; importing tempfile would take 20 ms."""
    parent = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - the name below it is random
    path = f"{parent}/{_NAME}{os.urandom(8).hex()}"
    os.mkdir(path, 0o700)  # noqa: PTH102 - paths are strings here
    return path
