"""Starts the processes of a node as children."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class NodeProcesses:
    """Starts `barnabas` with arguments, in processes that end with this one."""

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], standard_input: bytes = b""
    ) -> subprocess.Popen[bytes]:
        """Start a node process in its own process group, with pipes as its output and errors.

        Args:
            words: the arguments after `barnabas`: `start` with its options but --exit-with.
            environment: all variables of the process.
            standard_input: what it can read, at most 64 KiB.

        Raises:
            OSError: no process could be started.
        """
        source, sink = os.pipe()
        try:
            os.write(sink, standard_input)
        finally:
            os.close(sink)
        try:
            return subprocess.Popen(
                [*(sys.executable, "-m", "barnabas"), *words, "--exit-with", str(os.getpid())],
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                process_group=0,
                bufsize=0,
            )
        finally:
            os.close(source)

    def close(self) -> None:
        """Do nothing."""
