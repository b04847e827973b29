"""Signals to a server process."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from barnabas.testing.broker_process import ServerProcess

PROGRAM = "import signal; print('ready 127.0.0.1:1', flush=True); signal.pause()"


class NotingServer(ServerProcess):
    """Waits for a signal, and notes which signals it was sent."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "server.log")
        self.signals: list[signal.Signals] = []

    def _command(self) -> list[str]:
        return [sys.executable, "-c", PROGRAM]

    def _signal(self, number: signal.Signals) -> None:
        self.signals.append(number)
        super()._signal(number)


def test_a_process_that_terminates_is_not_told_to_stop_at_once(tmp_path: Path) -> None:
    with NotingServer(tmp_path) as server:
        server.terminate()
        server.stop()
        assert server.signals == [signal.SIGTERM]


def test_each_start_can_be_terminated(tmp_path: Path) -> None:
    with NotingServer(tmp_path) as server:
        server.terminate()
        server.stop()
        server.start()
        assert server.stop() == -signal.SIGTERM
        assert server.signals == [signal.SIGTERM] * 2
