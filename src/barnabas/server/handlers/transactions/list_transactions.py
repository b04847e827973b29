"""ListTransactions (key 66, v0-2): list transactional ids of this broker.

v1 adds a filter by duration (KIP-994), v2 a pattern of ids (KIP-1152).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.transaction.transaction_state import STATE_LABELS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from barnabas.settings.pattern import Pattern, PatternError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.transaction.transaction_metadata import TransactionMetadata
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

# Ids that are examined in one step. A match of a pattern may take milliseconds.
_AT_ONCE = 500
_MATCHED_AT_ONCE = 1


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that lists transactions."""
    return ListTransactionsHandler(dependencies).handle_list_transactions


class ListTransactionsHandler:
    """Lists the ids of all state partitions that this broker leads."""

    __slots__ = ("_clock", "_runtime")

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._runtime = dependencies.transactions.runtime
        self._clock = dependencies.clock

    def handle_list_transactions(
        self, context: RequestContext, request: ListTransactionsRequest
    ) -> ListTransactionsResponse | None:
        """List the ids that match all filters."""
        if self._runtime.is_loading:
            return _failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        matches: Callable[[str], bool] = _match_any
        if request.transactional_id_pattern:
            try:
                matches = Pattern(request.transactional_id_pattern).matches
            except PatternError:
                return _failed(ErrorCode.INVALID_REGULAR_EXPRESSION)
        return context.in_slices(self._build_response(request, matches))

    def _build_response(
        self, request: ListTransactionsRequest, matches: Callable[[str], bool]
    ) -> Generator[None, None, ListTransactionsResponse]:
        states, producers = set(request.state_filters), set(request.producer_id_filters)
        unknown = [
            each for each in dict.fromkeys(request.state_filters) if each not in STATE_LABELS
        ]
        found: list[TransactionState] = []
        now_ms, duration = self._clock.wall_ms(), request.duration_filter
        at_once = _MATCHED_AT_ONCE if request.transactional_id_pattern else _AT_ONCE

        def is_listed(metadata: TransactionMetadata) -> bool:
            return (
                (not producers or metadata.producer_id in producers)
                and (not states or metadata.state.label in states)
                and (duration < 0 or now_ms - metadata.start_ms > duration)
                and matches(metadata.transactional_id)
            )

        for shard in self._runtime.active_shards():
            for number, metadata in enumerate(list(shard.transactions.values()), 1):
                if is_listed(metadata):
                    found.append(
                        TransactionState(
                            transactional_id=metadata.transactional_id,
                            producer_id=metadata.producer_id,
                            transaction_state=metadata.state.label,
                        )
                    )
                if number % at_once == 0:
                    yield
            yield
        return ListTransactionsResponse(
            error_code=ErrorCode.NONE, unknown_state_filters=unknown, transaction_states=found
        )


def _match_any(_transactional_id: str) -> bool:
    return True


def _failed(error: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        error_code=error, unknown_state_filters=[], transaction_states=[]
    )
