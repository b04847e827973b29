"""Members as processes, forked from one that has everything imported: a birth takes milliseconds.

    python -m storms.nursery     one member per line of its input, as JSON; answers with its pid

The one that starts it is not forked itself: it may have threads, loops and connections.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from storms.member import MemberOptions, run

TESTS = Path(__file__).parents[1]
# A limit for what hangs.
END_S_MAX = 90.0


class Nursery:
    """Starts members; the one that leaves the context kills those that live."""

    def __init__(self, directory: Path) -> None:
        self._born: list[int] = []
        self._log = (directory / "members.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "storms.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for pid in self._born:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(END_S_MAX)
        self._log.close()

    def fork_member(self, options: MemberOptions) -> int:
        """Start a member; return its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(options), default=str) + "\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        self._born.append(pid)
        return pid


def is_alive(pid: int) -> bool:
    """Whether the process is there; the dead are reaped by their parent at once."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _serve() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        fields = json.loads(line)
        fields["directory"] = Path(fields["directory"])
        pid = os.fork()
        if pid:
            print(pid, flush=True)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        status = 1
        try:
            run(MemberOptions(**fields))
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)


if __name__ == "__main__":
    _serve()
