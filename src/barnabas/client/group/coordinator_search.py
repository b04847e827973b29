"""Find a group's coordinator, with retries, before the first request to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.coordinators import Coordinators
    from barnabas.client.errors import ClientError

__all__ = ["CoordinatorSearch"]


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
