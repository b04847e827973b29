"""Incremental fetch sessions on the broker (KIP-227): only what changed is asked and answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.protocol.errors import ErrorCode
    from barnabas.replication.fetch_params import FetchPartitionData
    from barnabas.replication.results import FetchResult
    from barnabas.storage.topic_partition import TopicIdPartition


class FetchContext(Protocol):
    """One request within, or without, a session.

    Use: `open` of the cache gives a context; if `error` is set, answer with it alone; else fetch
    `partitions()`, and answer with what `answer(results)` leaves, `session_id` and `error` after it.
    """

    # NONE, or FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
    error: ErrorCode
    # For the answer; 0: no session. Known only after `answer`.
    session_id: int

    def partitions(self) -> list[tuple[TopicIdPartition, FetchPartitionData]]:
        """All that is to be fetched, in order; a topic of unknown id has the name ""."""

    def answer(
        self, results: list[tuple[TopicIdPartition, FetchResult]]
    ) -> list[tuple[TopicIdPartition, FetchResult]]:
        """What of the results goes into the answer; the session is brought up to date."""
