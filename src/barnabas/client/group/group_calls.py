"""The coordinator of one group: the search for it, and requests to it.

Errors of requests show when the coordinator has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.client.connections.connections import Call
from barnabas.client.errors import ClientError, broker_error
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.coordinators import Coordinators
    from barnabas.protocol.api_keys import ApiKey
    from barnabas.protocol.schema import Message

__all__ = ["CoordinatorSearch", "GroupCalls"]

# Retriable errors that do not mean that the coordinator has moved.
_COORDINATOR_IS_RIGHT = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


class CoordinatorSearch:
    """Searches for one group's coordinator, with one FindCoordinator request at a time.

    Args:
        cluster: Provides the timer of retries.
        coordinators: Caches the result.
        group: The group's id.
        on_found: Called when a search that `is_ready` started has succeeded or failed.
    """

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        group: str,
        on_found: Callable[[], None],
    ) -> None:
        self._coordinators = coordinators
        self._group = group
        self._on_found = on_found
        # Whether a request is in flight; there is at most one.
        self._is_in_flight = False
        # Delays the next request after a retriable error.
        self._retry = cluster.retry_timer()
        # Whether `stop` was called; this is final.
        self._stopped = False
        # An error that is not retriable, until `is_ready` raises it.
        self._error: ClientError | None = None

    def is_ready(self) -> bool:
        """Return whether the coordinator is known; start a search otherwise.

        Raises:
            ClientError: The last search failed with an error that is not retriable. The next call
                starts a new search.
        """
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._coordinators.known(self._group) is not None:
            return True
        if not self._retry.is_scheduled:
            self._request()
        return self._coordinators.known(self._group) is not None

    def stop(self) -> None:
        """Stop searching."""
        self._stopped = True
        self._retry.cancel()

    def _request(self) -> None:
        if not self._is_in_flight and not self._stopped:
            self._is_in_flight = True
            self._coordinators.find(self._group, self._on_response)

    def _on_response(self, node_id: int | None, error: ClientError | None) -> None:
        self._is_in_flight = False
        if self._stopped:
            return
        if node_id is not None:
            self._retry.reset()
        elif error is not None and error.retriable:
            self._retry.retry(self._request)
            return
        else:
            self._error = error
        self._on_found()


class GroupCalls:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup: requests with one top-level error code.

    Args:
        cluster: Reaches the brokers.
        coordinators: Finds the coordinator; its cache entry is discarded when an error shows that
            the coordinator has moved or is unreachable.
        group: The group's id.
    """

    def __init__(self, cluster: Cluster, coordinators: Coordinators, group: str) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._group = group

    @property
    def is_coordinator_known(self) -> bool:
        """Whether a call would be sent without a coordinator lookup."""
        return self._coordinators.known(self._group) is not None

    def call(
        self,
        api_key: ApiKey,
        build: Callable[[int], Message],
        on_done: Callable[[Any, ClientError | None], None],
        timeout_ms: float | None = None,
    ) -> None:
        """Send a request; `on_done` receives the response and the error for its error code."""

        def on_response(response: Any, error: ClientError | None) -> None:
            if response is not None and response.error_code:
                words = f"{api_key.name} of group {self._group}"
                detail = getattr(response, "error_message", None)
                error = broker_error(response.error_code, words, detail)
            if error is not None and _is_wrong(error):
                self._coordinators.forget(self._group)
            on_done(response, error)

        self._coordinators.call(self._group, api_key, build, on_response, timeout_ms)

    def call_on_general_connection(
        self,
        api_key: ApiKey,
        build: Callable[[int], Message],
        on_done: Callable[[Any, ClientError | None], None],
    ) -> None:
        """Send a request like `call`, but over the node's general connection.

        Requests that wait on the coordinator's connection do not delay it.
        """
        node_id = self._coordinators.known(self._group)
        assert node_id is not None
        self._cluster.call(node_id, Call(api_key, build, on_done))


def _is_wrong(error: ClientError) -> bool:
    """Return whether an error means that the coordinator may have moved."""
    return error.retriable and error.error_code not in _COORDINATOR_IS_RIGHT
