"""Calls to one group's coordinator, with what their answers say about the coordinator itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.client.connections import Call
from barnabas.client.errors import ClientError, broker_error
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.cluster import Cluster
    from barnabas.client.coordinators import Coordinators
    from barnabas.protocol.api_keys import ApiKey
    from barnabas.protocol.schema import Message

__all__ = ["GroupCalls"]

# Retriable errors that the right coordinator gives.
_COORDINATOR_IS_RIGHT = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


class GroupCalls:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup: answers with one error code for all.

    Args:
        cluster: how brokers are reached.
        coordinators: told to look again when a call shows that another broker coordinates, or that
            this one cannot be reached.
        group: the group's id.
    """

    def __init__(self, cluster: Cluster, coordinators: Coordinators, group: str) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._group = group

    @property
    def is_coordinator_known(self) -> bool:
        """Whether a call would leave without looking first."""
        return self._coordinators.known(self._group) is not None

    def call(
        self,
        api_key: ApiKey,
        build: Callable[[int], Message],
        on_done: Callable[[Any, ClientError | None], None],
        timeout_ms: float | None = None,
    ) -> None:
        """Send a request; `on_done` gets the answer and, for a code other than NONE, the error."""

        def on_answer(response: Any, error: ClientError | None) -> None:
            if response is not None and response.error_code:
                words = f"{api_key.name} of group {self._group}"
                detail = getattr(response, "error_message", None)
                error = broker_error(response.error_code, words, detail)
            if error is not None and _is_wrong(error):
                self._coordinators.forget(self._group)
            on_done(response, error)

        self._coordinators.call(self._group, api_key, build, on_answer, timeout_ms)

    def call_beside(
        self,
        api_key: ApiKey,
        build: Callable[[int], Message],
        on_done: Callable[[Any, ClientError | None], None],
    ) -> None:
        """As `call`, over the connection for all else: nothing that waits there is in the way."""
        node_id = self._coordinators.known(self._group)
        assert node_id is not None
        self._cluster.call(node_id, Call(api_key, build, on_done))


def _is_wrong(error: ClientError) -> bool:
    """Whether an error speaks against the coordinator that was asked."""
    return error.retriable and error.error_code not in _COORDINATOR_IS_RIGHT
