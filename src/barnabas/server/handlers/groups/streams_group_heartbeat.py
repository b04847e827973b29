"""StreamsGroupHeartbeat (key 88, v0-1): membership of streams groups (KIP-1071)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.streams.configuring import StreamsStatus
from barnabas.coordinator.group.streams.streams_heartbeat import (
    StreamsClient,
    failed_streams_heartbeat,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_groups import Status
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.server.cluster.streams_topic_names import topology_problem
from barnabas.server.handlers.groups.client_identity import client_of

if TYPE_CHECKING:
    from barnabas.coordinator.group.streams.streams_heartbeat import StreamsHeartbeat
    from barnabas.protocol.messages.streams_groups import (
        StreamsGroupHeartbeatRequest,
        StreamsGroupHeartbeatResponse,
    )
    from barnabas.protocol.schema import Message
    from barnabas.server.controller_access.internal_streams_topics import InternalStreamsTopics
    from barnabas.server.dispatch.access import Access
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

_CREATE = int(AclOperation.CREATE)
_CLUSTER, _TOPIC = int(AclResourceType.CLUSTER), int(AclResourceType.TOPIC)
_CLUSTER_NAME = "kafka-cluster"
_MISSING = int(StreamsStatus.MISSING_INTERNAL_TOPICS)
# Failed topics that a status names.
_NAMED_MAX = 3


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler of heartbeats. The response follows when its records are committed."""
    streams, cluster = dependencies.groups.streams, dependencies.cluster
    topics = dependencies.streams_topics

    def handle_streams_group_heartbeat(
        context: RequestContext, request: StreamsGroupHeartbeatRequest
    ) -> Message | None:
        if not cluster.image.features.has_streams_groups:
            return failed_streams_heartbeat(ErrorCode.UNSUPPORTED_VERSION, None)
        if request.topology is None:
            return serve(context, request, None)
        return context.after(topology_problem(request.topology), partial(serve, context, request))

    def serve(
        context: RequestContext, request: StreamsGroupHeartbeatRequest, problem: str | None
    ) -> StreamsGroupHeartbeatResponse | None:
        if problem is not None:
            return failed_streams_heartbeat(ErrorCode.STREAMS_INVALID_TOPOLOGY, problem)
        identity = client_of(context)

        def respond(heartbeat: StreamsHeartbeat) -> None:
            if heartbeat.to_create:
                # Kafka remembers errors for two heartbeats.
                errors_ms = 2 * heartbeat.response.heartbeat_interval_ms
                _create_topics(context.access, topics, heartbeat, errors_ms)
            response = heartbeat.response
            context.respond(response, is_clean=response.error_code == ErrorCode.NONE)

        client = StreamsClient(identity, context.version)
        streams.heartbeat(request, client, respond, context.respond_in_slices)
        return None

    return handle_streams_group_heartbeat


def _create_topics(
    access: Access | None,
    topics: InternalStreamsTopics,
    heartbeat: StreamsHeartbeat,
    errors_ms: float,
) -> None:
    """Create the missing internal topics, and add earlier errors to the status."""
    response, to_create = heartbeat.response, heartbeat.to_create
    refused: list[str] = []
    if access is not None and not access.allows(_CREATE, _CLUSTER, _CLUSTER_NAME, is_logged=False):
        refused = [name for name in to_create if not access.allows(_CREATE, _TOPIC, name)]
    statuses = response.status
    assert statuses is not None, "a heartbeat without an error has a list of statuses"
    status = next((each for each in statuses if each.status_code == _MISSING), None)
    if refused:
        message = f"Unauthorized to CREATE on topics {','.join(refused)}."
        if status is None:
            statuses.append(Status(status_code=_MISSING, status_detail=message))
        else:
            status.status_detail += f"; {message}"
        return
    topics.create(to_create, errors_ms)
    errors = topics.errors(to_create)
    if status is None or not errors:
        return
    named = ",".join(f"{name} ({message})" for name, message in list(errors.items())[:_NAMED_MAX])
    if len(errors) > _NAMED_MAX:
        named += f" and {len(errors) - _NAMED_MAX} more"
    status.status_detail += f"; Creation failed: {named}."
