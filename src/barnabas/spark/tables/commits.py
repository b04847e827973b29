"""Commits of batches to tables of both kinds: identity of a batch, and retries after conflicts.

The commands of `barnabas tables` import this module too, so it does not import pyspark.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from barnabas.runtime.rng import SystemRng

if TYPE_CHECKING:
    from collections.abc import Callable

# For how long a commit is tried while others change the table, and the pauses between (seconds).
TIMEOUT_S = 120.0
_PAUSE_S, _PAUSE_MAX_S = 0.05, 2.0
# A commit with a file may be older by this than the file if clocks differ (ms).
CLOCKS_MS = 3_600_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Identifies a batch that Spark may repeat; the table remembers it with the rows."""

    # Id of the streaming query; constant over restarts from the same checkpoint.
    query_id: str
    batch_id: int

    def is_in(self, table: str, last: int | None, error: type[Exception], restore: str) -> bool:
        """Return whether a table has the batch already.

        Args:
            table: name or address of the table.
            last: the last batch of the query that the table has; None without one.
            error: what to raise for a table that is newer than the checkpoint.
            restore: how to bring the table back to the checkpoint, for the error.
        """
        if last is None or last < self.batch_id:
            return False
        if last == self.batch_id:
            return True
        # Spark repeats only the last batch. An earlier batch comes from an older checkpoint, and
        # may hold other records than the batch in the table.
        raise error(
            f"{table} has batch {last} of this query already, and the checkpoint is at batch "
            f"{self.batch_id}: it is older than the table. {restore} that matches the checkpoint. "
            "Or start with a new checkpoint and a new table: it lacks the rows whose records were "
            "deleted"
        )


def retry_conflicts(attempt: Callable[[], T], conflicts: tuple[type[Exception], ...]) -> T:
    """Call `attempt` until it raises no conflict with another writer, and return its result.

    Raises:
        Exception: the last conflict, when the time is up, or any other error.
    """
    deadline = time.monotonic() + TIMEOUT_S
    rng = SystemRng()
    pause = _PAUSE_S
    while True:
        try:
            return attempt()
        except conflicts:
            if time.monotonic() >= deadline:
                raise
        time.sleep(pause * (1 + rng.random()) / 2)
        pause = min(2 * pause, _PAUSE_MAX_S)
