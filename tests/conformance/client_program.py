"""A client in a separate process, with JSON on the command line and JSON lines as output.

`PROGRAM ACTION JSON` runs one action and prints its result as the last line; the action `all` runs
several actions in one process. `PROGRAM member JSON` runs a group member: it prints its partitions
at each change and the records that it receives, and leaves the group at the end of its standard
input.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from waiting import PATIENCE_S

# Limits for operations that hang.
TIMEOUT_S = 150
WAIT_S = PATIENCE_S


class ClientProgram:
    """The program of a client.

    Args:
        command: words before the action.
        bootstrap: HOST:PORT of the broker.
        environment: variables that override those of this process.
    """

    def __init__(
        self, command: Sequence[str], bootstrap: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = list(command)
        self._environment = {**os.environ, **(environment or {})}
        self.bootstrap = bootstrap

    def with_environment(self, **changes: str) -> ClientProgram:
        """Return the same program with additional environment variables."""
        return ClientProgram(self._command, self.bootstrap, {**self._environment, **changes})

    def words(self, action: str, arguments: dict[str, Any]) -> list[str]:
        return [*self._command, action, json.dumps({"bootstrap": self.bootstrap, **arguments})]

    def call(self, action: str, **arguments: Any) -> Any:
        """Run an action and return its result."""
        done = subprocess.run(
            self.words(action, arguments),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{action}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return json.loads(done.stdout.strip().splitlines()[-1])

    def call_all(self, calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
        """Run actions one after the other in one process, and return their results."""
        actions = [[name, {"bootstrap": self.bootstrap, **arguments}] for name, arguments in calls]
        results: list[Any] = self.call("all", calls=actions)["results"]
        return results

    def member(self, **arguments: Any) -> Member:
        """Start a member of a group."""
        return Member(self.words("member", arguments), self._environment)


class Member:
    """A running member, and its output so far."""

    def __init__(self, words: list[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            words,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # The current partitions, and each earlier set of partitions.
        self.partitions: frozenset[int] = frozenset()
        self.history: list[frozenset[int]] = []
        # Values of the records, in the order of arrival.
        self.values: list[str] = []
        self._errors: list[str] = []
        self._is_ended = False
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            if "partitions" in event:
                self.partitions = frozenset(event["partitions"])
                self.history.append(self.partitions)
            self.values += event.get("values", ())

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def has_failed(self) -> bool:
        """Whether the process has ended without a request."""
        return not self._is_ended and not self.is_running

    @property
    def errors(self) -> str:
        return "".join(self._errors[-60:])

    def leave(self) -> None:
        """Make the member leave the group, and wait for the end of its process."""
        assert self._process.stdin is not None
        self._is_ended = True
        self._process.stdin.close()
        status = self._process.wait(WAIT_S)
        self._end()
        assert status == 0, self.errors

    def kill(self) -> None:
        """Kill the process (kill -9), so that it cannot leave the group."""
        self._is_ended = True
        if self.is_running:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(WAIT_S)
        self._end()

    def _end(self) -> None:
        for reader in self._readers:
            reader.join(WAIT_S)
        self.partitions = frozenset()
