"""The driver's part of a transactional write: it ends the transactions of all tasks.

A driver that dies between two ends leaves a batch that is partly committed. The replay leaves the
committed slices out and writes the others again. A replay with another number of tasks would
distribute the rows differently, so it is refused.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.client.errors import ClientError
from barnabas.runtime.clock import SystemClock
from barnabas.spark.clients import transactional_client
from barnabas.spark.sink.errors import ReplayError, explained
from barnabas.spark.sink.markers import Marker, read_marker
from barnabas.spark.sink.slices import WrittenSlice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import WriterCommitMessage

    from barnabas.client.facade import Client
    from barnabas.spark.options import SinkOptions

__all__ = ["abort_slices", "commit_slices"]

logger = logging.getLogger(__name__)


def commit_slices(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit the transactions of all tasks; does nothing for tasks that wrote without them.

    Raises:
        ReplayError: the batch had another number of tasks before, and may be partly committed.
        TransactionError: a transaction was fenced or timed out; the batch must be replayed.
        ClientError: a coordinator did not respond in time; the batch must be replayed.
    """
    slices = _slices(messages)
    if not slices:
        return
    client = transactional_client(options.client)
    if slices[0].slice.batch_id is not None:
        _check_tasks(client, slices, len(messages))
    transactions = [each.transaction for each in slices if each.transaction is not None]
    results = client.admin.end_transactions(transactions, committed=True, raise_errors=False)
    now = SystemClock().wall_ms()
    for each in slices:
        error = results.get(each.slice.transactional_id)
        if isinstance(error, ClientError):
            timeout_ms = client.config.transaction_timeout_ms
            raise explained(error, each.slice, now - each.began_ms, timeout_ms) from error


def abort_slices(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort the transactions of the tasks that succeeded.

    Errors are only logged: the next attempt or the timeout aborts open transactions. Spark
    also calls this after a failed commit, which may have committed some of the transactions.
    """
    transactions = [each.transaction for each in _slices(messages) if each.transaction is not None]
    if not transactions:
        return
    client = transactional_client(options.client)
    results = client.admin.end_transactions(transactions, committed=False, raise_errors=False)
    for name, result in results.items():
        if isinstance(result, ClientError):
            logger.warning("Transaction not aborted: transactional.id=%s error=%s", name, result)


def _slices(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenSlice]:
    return [each for each in messages if isinstance(each, WrittenSlice)]


def _check_tasks(client: Client, slices: list[WrittenSlice], tasks: int) -> None:
    """Compare the number of tasks with an earlier attempt's, or record it before the first end."""
    topic = next((each.topic for each in slices if each.topic is not None), None)
    if topic is None:
        # No task had rows.
        return
    batch_id, group = slices[0].slice.batch_id, slices[0].slice.query_group
    assert batch_id is not None, slices[0]
    before = read_marker(client, group)
    facts = {"tasks": tasks}
    if before is None or before.batch_id < batch_id:
        client.commit_offsets(group, Marker(batch_id, facts, topic).offsets())
    elif before.batch_id > batch_id:
        raise ReplayError(
            f"batch {batch_id} comes after batch {before.batch_id} of the same query: the "
            "checkpoint was set back, or another run of the query is ahead"
        )
    elif before.facts != facts:
        raise ReplayError(
            f"batch {batch_id} had {before.facts.get('tasks')} tasks, and its replay has {tasks}"
        )
