"""The journal of one client process: lines before and after each operation.

A process may be killed at any time, so it writes a line before the operation. An
incomplete last line is ignored.
"""

from __future__ import annotations

import time
from pathlib import Path

from chaos.transactional.history import (
    Initialization,
    Place,
    ReadRun,
    Result,
    Transaction,
    TransactionHistory,
)


class Journal:
    """Writes the journal of a process.

    Args:
        path: the file; it is created.
        instance: the number of the process.
        name: the transactional id, or the name of a reader.
    """

    def __init__(self, path: Path, instance: int, name: str) -> None:
        self._file = path.open("a", buffering=1)
        self._write("instance", instance, name)

    def _write(self, *words: object) -> None:
        self._file.write(" ".join(map(str, words)) + "\n")

    def asks_to_initialize(self) -> None:
        """Record the start of `init_transactions`."""
        self._write("initialize", time.monotonic())

    def initialized(self) -> None:
        """Record its success."""
        self._write("initialized", time.monotonic())

    def begins(self, number: int, places: list[Place], offsets: dict[int, int]) -> None:
        """Record the plan of a transaction before its first record is sent."""
        told = ",".join(f"{topic}/{partition}" for topic, partition in places) or "-"
        consumed = ",".join(f"{partition}={offset}" for partition, offset in offsets.items())
        self._write("begin", number, time.monotonic(), told, consumed or "-")

    def asks_to_commit(self, number: int) -> None:
        """Record that the producer is about to call `commit_transaction`."""
        self._write("commit", number, time.monotonic())

    def ended(self, number: int, result: Result) -> None:
        """Record the result."""
        self._write("end", number, time.monotonic(), result.value)

    def starts_run(self, run: int) -> None:
        """Record that the reader was placed anew."""
        self._write("run", run)

    def reads(self, records: list[tuple[Place, int, int]]) -> None:
        """Record what a reader got: place, offset and code of each record."""
        now = time.monotonic()
        for (topic, partition), offset, code in records:
            self._file.write(f"read {topic} {partition} {offset} {code} {now}\n")

    def errs(self, error: object) -> None:
        """Record an error of the client, on one line."""
        self._write("error", type(error).__name__, " ".join(str(error).split())[:300])


class JournalReader:
    """Adds the lines of a journal to a history, as far as they are written.

    Args:
        path: the journal.
        history: receives transactions, initializations and runs.
    """

    def __init__(self, path: Path, history: TransactionHistory) -> None:
        self._path = path
        self._history = history
        self._position = 0
        self._instance = -1
        self._name = ""
        self._asked = 0.0
        self._runs: dict[Place, ReadRun] = {}
        # Errors of the client, in words.
        self.errors: list[str] = []
        # When the newest transaction began that is known to be committed.
        self.committed_begin = 0.0
        # When `init_transactions` ended; 0 before.
        self.initialized = 0.0

    def catch_up(self) -> None:
        """Read the lines that were written since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._position += len(complete)
        for line in complete.decode().splitlines():
            word, _, rest = line.partition(" ")
            getattr(self, f"_on_{word}")(rest)

    def _on_instance(self, rest: str) -> None:
        instance, self._name = rest.split(" ", 1)
        self._instance = int(instance)

    def _on_initialize(self, rest: str) -> None:
        self._asked = float(rest)

    def _on_initialized(self, rest: str) -> None:
        self.initialized = float(rest)
        self._history.initializations.append(
            Initialization(self._name, self._instance, self._asked, self.initialized)
        )

    def _on_begin(self, rest: str) -> None:
        number, began, told, consumed = rest.split(" ")
        places = [each.rsplit("/", 1) for each in told.split(",")] if told != "-" else []
        offsets = [each.split("=") for each in consumed.split(",")] if consumed != "-" else []
        self._history.transactions[int(number)] = Transaction(
            int(number),
            self._name,
            self._instance,
            tuple((topic, int(partition)) for topic, partition in places),
            float(began),
            {int(partition): int(offset) for partition, offset in offsets},
        )

    def _on_commit(self, rest: str) -> None:
        number, asked = rest.split(" ")
        transaction = self._history.transactions[int(number)]
        if transaction.commit_asked is None:
            transaction.commit_asked = float(asked)

    def _on_end(self, rest: str) -> None:
        number, ended, result = rest.split(" ")
        transaction = self._history.transactions[int(number)]
        transaction.ended, transaction.result = float(ended), Result(result)
        if transaction.result is Result.COMMITTED:
            self.committed_begin = transaction.began

    def _on_run(self, _rest: str) -> None:
        self._runs.clear()

    def _on_read(self, rest: str) -> None:
        topic, partition, offset, code, now = rest.split(" ")
        place = (topic, int(partition))
        run = self._runs.get(place)
        if run is None:
            run = self._runs[place] = ReadRun(self._name, place)
            self._history.runs.append(run)
        run.add(int(offset), int(code), float(now))

    def _on_error(self, rest: str) -> None:
        self.errors.append(rest)
