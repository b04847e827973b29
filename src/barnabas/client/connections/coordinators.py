"""Find the coordinator of a group or a transactional id (FindCoordinator; KIP-699).

Results are cached until a call shows that they are wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.connections.cluster import ANY_NODE, Cluster
from barnabas.client.connections.connections import Call
from barnabas.client.errors import ClientError, DisconnectedError, broker_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.retries import OnDone
    from barnabas.protocol.schema import Message

__all__ = ["GROUP", "SHARE", "TRANSACTION", "Coordinators"]

_NO_COORDINATOR = ErrorCode.COORDINATOR_NOT_AVAILABLE
# From this version on a request may contain several keys.
_MANY_FROM = 4
# Key types. The key of a share coordinator consists of group, topic id and partition (KIP-932).
GROUP = 0
TRANSACTION = 1
SHARE = 2
_KIND_NAMES = {GROUP: "group", TRANSACTION: "transactional.id", SHARE: "share partition"}


class Coordinators:
    """Node ids of coordinators by key: by default by group id.

    Args:
        cluster: Sends the FindCoordinator requests.
        key_type: GROUP, TRANSACTION or SHARE.
    """

    def __init__(self, cluster: Cluster, key_type: int = GROUP) -> None:
        self._cluster = cluster
        self._key_type = key_type
        # Node id of the coordinator by group, or by the key of another type; removed by `forget`.
        self._known: dict[str, int] = {}

    def known(self, group: str) -> int | None:
        """Return the cached coordinator of the group, if metadata contains that node; else None."""
        node_id = self._known.get(group)
        return node_id if node_id in self._cluster.metadata.nodes else None

    def forget(self, group: str) -> None:
        """Discard the cached coordinator, so that the next call looks it up again."""
        self._known.pop(group, None)

    def call(
        self,
        group: str,
        api_key: ApiKey,
        build: Callable[[int], Message],
        on_done: OnDone[Message],
        timeout_ms: float | None = None,
        max_version: int | None = None,
    ) -> None:
        """Send a request to the group's coordinator; look the coordinator up if it is unknown.

        Args:
            group: The group's id.
            api_key: The API of the request.
            build: Builds the request for the negotiated version.
            on_done: Called exactly once, possibly before this method returns.
            timeout_ms: Timeout of the request (ms); None for request.timeout.ms.
            max_version: An additional upper limit of the API version.
        """

        def on_response(response: Message | None, error: ClientError | None) -> None:
            if isinstance(error, DisconnectedError):
                # The coordinator may have a new address.
                self._cluster.request_update()
            on_done(response, error)

        def on_found(node_id: int | None, error: ClientError | None) -> None:
            if node_id is None:
                on_done(None, error)
            else:
                call = Call(api_key, build, on_response, timeout_ms, max_version)
                self._cluster.call_coordinator(node_id, call)

        self.find(group, on_found)

    def find(self, group: str, on_found: OnDone[int]) -> None:
        """Find the node that coordinates `group`, with a single attempt."""
        known = self.known(group)
        if known is not None:
            on_found(known, None)
            return

        subject = f"coordinator of {_KIND_NAMES[self._key_type]} {group}"

        def build(version: int) -> Message:
            request = FindCoordinatorRequest(key_type=self._key_type)
            if version >= _MANY_FROM:
                request.coordinator_keys = [group]
            else:
                request.key = group
            return request

        def on_response(response: Message | None, error: ClientError | None) -> None:
            if response is None:
                on_found(None, error)
                return
            assert isinstance(response, FindCoordinatorResponse)
            named = {each.key: each for each in response.coordinators}
            found = named.get(group) if named else response
            if found is None:
                on_found(None, broker_error(_NO_COORDINATOR, subject, "missing in the response"))
            elif found.error_code:
                on_found(None, broker_error(found.error_code, subject, found.error_message))
            else:
                self._known[group] = found.node_id
                self._when_named(group, found.node_id, on_found)

        self._cluster.call(ANY_NODE, Call(ApiKey.FIND_COORDINATOR, build, on_response))

    def _when_named(self, group: str, node_id: int, on_found: OnDone[int]) -> None:
        """Report the node once metadata contains it; otherwise COORDINATOR_NOT_AVAILABLE."""
        if node_id in self._cluster.metadata.nodes:
            on_found(node_id, None)
            return

        def on_refreshed(_none: None, error: ClientError | None) -> None:
            if error is None and node_id not in self._cluster.metadata.nodes:
                # The caller retries after a backoff, as if there were no coordinator.
                self.forget(group)
                subject = f"coordinator of {_KIND_NAMES[self._key_type]} {group}"
                words = f"metadata does not name broker {node_id}"
                error = broker_error(_NO_COORDINATOR, subject, words)
            on_found(node_id if error is None else None, error)

        self._cluster.refresh((), on_refreshed)
