"""Requests to one group's coordinator; errors show when the coordinator has changed."""

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

__all__ = ["GroupCalls"]

# Retriable errors that do not mean that the coordinator has moved.
_COORDINATOR_IS_RIGHT = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


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
