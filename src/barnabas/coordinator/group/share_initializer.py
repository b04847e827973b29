"""Initializes share partitions at the share coordinators, and records the result."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.group.share.state_store import ShareStateStore
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse,
    )

_log = logging.getLogger(__name__)


class ShareInitializer:
    """Sends the initializations of all shards of this broker."""

    __slots__ = ("_runtime", "_store")

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], store: ShareStateStore) -> None:
        self._runtime = runtime
        self._store = store

    def initialize(self, request: InitializeShareGroupStateRequest) -> None:
        """Initialize the partitions that a heartbeat requests.

        If one of them fails, all are given up, and a later heartbeat requests them again.
        """
        self._store.initialize(
            request, lambda response: self._record(request.group_id, response, is_altered=False)
        )

    def alter(
        self,
        request: InitializeShareGroupStateRequest,
        on_response: Callable[[InitializeShareGroupStateResponse], None],
    ) -> None:
        """Set the offsets of partitions. The response does not wait for the record of the result.

        Args:
            request: the partitions and their offsets.
            on_response: gets the response of the share coordinators.
        """

        def respond(response: InitializeShareGroupStateResponse) -> None:
            self._record(request.group_id, response, is_altered=True)
            on_response(response)

        self._store.initialize(request, respond)

    def _record(
        self, group_id: str, response: InitializeShareGroupStateResponse, *, is_altered: bool
    ) -> None:
        """Record that partitions are initialized.

        If the offsets are altered, this does not wait for other writes of the turn: the response
        follows, and the client's next request must see the result.
        """
        partitions = {
            topic.topic_id: frozenset(each.partition for each in topic.partitions)
            for topic in response.results
        }
        error = first_error(response)
        if error is not ErrorCode.NONE:
            _log.warning(
                "Cannot initialize share partitions: group=%s error=%s", group_id, error.name
            )
            if not is_altered:
                self._give_up(group_id, partitions)
            return

        def on_written(_: None, error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                _log.warning(
                    "Cannot record initialized share partitions: group=%s error=%s",
                    group_id,
                    error.name,
                )
                self._give_up(group_id, partitions)

        write = self._runtime.write if is_altered else self._runtime.write_jointly
        write(group_id, lambda shard: shard.share_state.complete(group_id, partitions), on_written)

    def _give_up(self, group_id: str, partitions: dict[bytes, frozenset[int]]) -> None:
        def on_written(_: None, error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                # The initialization is repeated after group.share.initialize.retry.interval.ms.
                _log.warning(
                    "Cannot give up share partitions: group=%s error=%s", group_id, error.name
                )

        self._runtime.write(
            group_id, lambda shard: shard.share_state.give_up(group_id, partitions), on_written
        )


def first_error(response: InitializeShareGroupStateResponse) -> ErrorCode:
    """Return the error of the first partition that has one, or NONE."""
    codes = (each.error_code for topic in response.results for each in topic.partitions)
    return ErrorCode.of(next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE))
