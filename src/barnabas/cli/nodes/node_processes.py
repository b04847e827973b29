"""Starts the processes of a node as children of this process or of a template.

On Linux, all brokers and controllers of a node are forks of one process that has imported the
program. Elsewhere, each is an interpreter of its own. `barnabas.runtime.forked_process` tells how.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from barnabas.runtime.child_process import ProcessStarter, SubprocessStarter
from barnabas.runtime.forked_process import ForkStarter, can_fork

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.runtime.child_process import ChildProcess


# The module is above this package, because it runs the whole command line.
_TEMPLATE = "barnabas.cli.process_template"


class NodeProcesses:
    """Starts `barnabas` with arguments, in processes that end with this one.

    Args:
        is_forking: whether to fork from a template; by default, if the system can.
    """

    def __init__(self, *, is_forking: bool | None = None) -> None:
        self._starter: ProcessStarter
        if can_fork() if is_forking is None else is_forking:
            self._starter = ForkStarter((sys.executable, "-m", _TEMPLATE))
        else:
            self._starter = SubprocessStarter((sys.executable, "-m", "barnabas"))

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], standard_input: bytes = b""
    ) -> ChildProcess:
        """Start a node process in its own process group, with pipes as its output and errors.

        Args:
            words: the arguments after `barnabas`: `start` with its options but --exit-with.
            environment: all variables of the process.
            standard_input: what it can read, at most 64 KiB.

        Raises:
            OSError: no process could be started.
        """
        words = [*words, "--exit-with", str(self._starter.parent_id)]
        return self._starter.start(words, environment, standard_input)

    def close(self) -> None:
        """End the template. Processes that still run stop as after the end of this process."""
        self._starter.close()
