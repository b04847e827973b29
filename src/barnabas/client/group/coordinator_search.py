"""Find a group's coordinator, with retries, before the first request to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.coordinators import Coordinators
    from barnabas.client.errors import ClientError
    from barnabas.runtime.timer import Cancellable

__all__ = ["CoordinatorSearch"]


class CoordinatorSearch:
    """Searches for one group's coordinator, with one FindCoordinator request at a time.

    Args:
        cluster: The cluster to ask.
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
        self._cluster = cluster
        self._coordinators = coordinators
        self._group = group
        self._on_found = on_found
        # Whether a request is in flight.
        self._looking = False
        # Timer of the retry backoff; None without one.
        self._pause: Cancellable | None = None
        self._failures = 0
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
        if not self._looking and self._pause is None and not self._stopped:
            self._looking = True
            self._coordinators.find(self._group, self._on_answer)
        return self._coordinators.known(self._group) is not None

    def stop(self) -> None:
        """Stop searching."""
        self._stopped = True
        if self._pause is not None:
            self._pause.cancel()

    def _on_answer(self, node_id: int | None, error: ClientError | None) -> None:
        self._looking = False
        if self._stopped:
            return
        if node_id is not None:
            self._failures = 0
        elif error is not None and error.retriable:
            self._failures += 1
            delay_ms = self._cluster.retry_backoff.delay_ms(self._failures)
            self._pause = self._cluster.runtime.timer.call_later(delay_ms, self._look_again)
            return
        else:
            self._error = error
        self._on_found()

    def _look_again(self) -> None:
        self._pause = None
        if not self._stopped and not self._looking:
            self._looking = True
            self._coordinators.find(self._group, self._on_answer)
