"""Runs `producer_program` and sends calls to it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

from scenario.transactions.refused import Refused
from waiting import PATIENCE_S

TESTS = Path(__file__).parents[2]
# The program itself retries for PATIENCE_S.
RESULT_TIMEOUT_S = PATIENCE_S + 30.0


class RemoteProducer:
    """A transactional producer in a separate process.

    Args:
        kind: a key of `PRODUCERS`.
        bootstrap: addresses of the cluster.
        transactional_id: the id.
        timeout_ms: the transaction timeout.
    """

    def __init__(self, kind: str, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        words = [sys.executable, "-m", "scenario.transactions.producer_program"]
        self._process = subprocess.Popen(
            [*words, kind, bootstrap, transactional_id, str(timeout_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        # Lines of the output; "" at its end.
        self._lines: queue.Queue[str] = queue.Queue()
        self._is_busy = False
        threading.Thread(target=self._read_lines, daemon=True).start()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    @property
    def is_busy(self) -> bool:
        """Whether a call is in progress, or its result was not read yet."""
        return self._is_busy

    def start(self, name: str, *arguments: object) -> None:
        """Start a call of `TransactionalProducer`; `result` waits for it."""
        assert not self._is_busy, "the producer's last call has not returned yet"
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()
        self._is_busy = True

    def result(self) -> None:
        """Wait for the result of the started call.

        Raises:
            Refused: the call failed.
        """
        assert self._is_busy, "the producer has no call in progress"
        try:
            line = self._lines.get(timeout=RESULT_TIMEOUT_S)
        except queue.Empty:
            raise AssertionError(f"no result within {RESULT_TIMEOUT_S:g} s") from None
        assert line, "the producer's process has ended"
        self._is_busy = False
        found = json.loads(line)
        if found is not None:
            raise Refused(*found)

    def call(self, name: str, *arguments: object) -> None:
        """Call a method of `TransactionalProducer`, and wait for its result.

        Raises:
            Refused: the call failed.
        """
        self.start(name, *arguments)
        self.result()

    def pause(self) -> None:
        """Send SIGSTOP to the process."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT to the process."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL to the process; an open transaction stays open."""
        self._process.kill()
        self._process.wait()
