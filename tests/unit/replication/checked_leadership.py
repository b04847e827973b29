"""A partition that checks that it still leads."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from unit.replication.replica_set import PARTITION

TIMEOUT_MS = 1_000.0


class Checking:
    """The results of checks by one leader."""

    def __init__(self, manager, partition=PARTITION) -> None:
        self._manager = manager
        self._partition = partition
        self.results: list[ErrorCode] = []

    def begin(self) -> None:
        self._manager.confirm_leadership(self._partition, TIMEOUT_MS, self.results.append)
