"""Repeat queries that fail because Spark gave up a Python process too early.

Spark waits ten seconds for the start of the process. No setting changes that, and a busy machine
takes longer.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery


def worker_was_late(error: StreamingQueryException | None) -> bool:
    """Return whether the query failed because of a Python process that started too slowly."""
    return error is not None and "Python worker failed to connect back" in str(error)


def run_job(start: Callable[[], StreamingQuery]) -> None:
    """Run the query of a job to its end, and print its progress for `killed_job.Job`."""
    query = start()
    print("started", flush=True)
    while True:
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if not worker_was_late(error):
                raise
            query = start()
        else:
            break
    print("finished", flush=True)
