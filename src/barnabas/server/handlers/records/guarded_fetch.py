"""Fetch with an authorizer: READ on each topic, and CLUSTER_ACTION for followers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.server.handlers.records.fetch import FetchHandler, PendingFetch

if TYPE_CHECKING:
    from barnabas.protocol.messages.fetch import FetchRequest
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies
    from barnabas.server.handlers.records.fetch import RequestedPartition

_READ, _CLUSTER_ACTION = int(AclOperation.READ), int(AclOperation.CLUSTER_ACTION)
_TOPIC, _CLUSTER = int(AclResourceType.TOPIC), int(AclResourceType.CLUSTER)
_TOPIC_IDS_SINCE = 13
_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that reads records for clients that may read them."""
    return GuardedFetchHandler(dependencies).handle_fetch


class GuardedPendingFetch(PendingFetch):
    """Refuses the topics that the client may not read."""

    __slots__ = ()

    def filter_readable(self) -> list[RequestedPartition]:
        """Return the partitions that can be read, and record an error for all others."""
        if self.is_exempt:
            # The follower's right has been checked.
            return super().filter_readable()
        access = self._context.access
        assert access is not None, "the node has an authorizer"
        idle = self._session.idle
        if idle is not None:
            for name in idle.topics:
                if not access.allows(_READ, _TOPIC, name, is_logged=False):
                    idle.activate_topic(name)
        requested = self._session.partitions()
        refused = {
            name
            for name in {key.topic for key, _ in requested}
            if self._is_known(name) and not access.allows(_READ, _TOPIC, name)
        }
        if not refused:
            return super().filter_readable()
        self.requested = requested
        # As in Kafka, unknown ids come first, and then the errors in the order of the request.
        self._refuse(
            [key for key, _ in requested if not self._is_known(key.topic)],
            ErrorCode.UNKNOWN_TOPIC_ID,
        )
        for key, _ in requested:
            if key.topic in refused:
                self._refuse([key], _REFUSED)
            elif key not in self._refused and not self._cluster.has_partition(
                key.topic, key.partition
            ):
                self._refuse([key], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return [each for each in requested if each[0] not in self._refused]

    def refuse_all(self, requested: list[RequestedPartition]) -> None:
        """Respond with an error for each partition."""
        self.requested = requested
        self._refuse([key for key, _ in requested], _REFUSED)
        self.on_fetched([])

    def _is_known(self, name: str) -> bool:
        """Return whether the name is known. It is empty for a topic id that was never known."""
        return bool(name) or self._context.version < _TOPIC_IDS_SINCE


class GuardedFetchHandler(FetchHandler):
    """Asks the authorizer before partitions are read."""

    __slots__ = ()

    def __init__(self, dependencies: BrokerDependencies) -> None:
        super().__init__(dependencies)
        self._pending = GuardedPendingFetch

    def handle_fetch(self, context: RequestContext, request: FetchRequest) -> Message | None:
        """Respond as without an authorizer, with errors for partitions that are refused."""
        if request.replica_id < 0 and request.replica_state.replica_id < 0:
            return super().handle_fetch(context, request)
        params = self._params(context, request)
        access = context.access
        assert access is not None, "the node has an authorizer"
        if not params.is_from_follower or access.allows(_CLUSTER_ACTION, _CLUSTER, CLUSTER_NAME):
            return super().handle_fetch(context, request)
        session = self._sessions.open(
            self._session_request(context.version, request, params), self._cluster.topic_name
        )
        if session.error is not ErrorCode.NONE:
            return FetchResponse(
                error_code=session.error, session_id=session.session_id, responses=[]
            )
        pending = GuardedPendingFetch(
            context, session, self._cluster, self._replicas, is_from_follower=True
        )
        pending.refuse_all(session.partitions())
        return None
