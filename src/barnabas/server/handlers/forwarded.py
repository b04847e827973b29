"""Requests that go to the active controller (KIP-590).

Most of them go there unchanged, whatever their API. On a controller's listeners, the same handler
passes them to the controller of the process. The differences between APIs are in the rows of
`served_apis` and `controller/apis.py`. Two APIs are checked here first:

- DeleteTopics (key 20, v0-6) deletes topics by name or, from v6 on, by id. v5 adds error messages.
- ElectLeaders (key 43, v0-2) runs preferred elections and, from v1 on, unclean ones (KIP-183, 460).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.controller.partitions.topics import refuse_delete_topics
from barnabas.controller.result import Refusal
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.messages.partition_changes import (
        ElectLeadersRequest,
        ElectLeadersResponse,
    )
    from barnabas.protocol.messages.topics import DeleteTopicsRequest
    from barnabas.protocol.schema import Message
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.dispatch.served_apis import ServedApi
    from barnabas.settings.definition import ParsedConfig


def forwarded(
    served: Mapping[int, ServedApi], forwarding: ControllerAccess, cluster: ClusterView
) -> Handle:
    """Return the handler that forwards requests.

    The response follows when the changes of the request are committed. Requests that create or
    delete partitions count for the mutation quota of the client (KIP-599). Their response also
    waits until this broker has applied the change.
    """

    def handle_forwarded(context: RequestContext, request: Message) -> None:
        strict_since = served[request.__api_key__].strict_since
        if strict_since is None:
            forwarding.send(request, context.respond_forwarded, client_context=context)
            return
        mutations = None
        if context.quotas.is_active:
            mutations = context.quotas.mutation.allowance(
                context.user, context.client_id or "", context.version >= strict_since
            )

        def on_done(response: Any) -> None:
            throttle_ms = 0 if mutations is None else mutations.throttle_ms()
            cluster.backlog.when_empty(lambda: context.respond_forwarded(response, throttle_ms))

        forwarding.send(request, on_done, mutations, context)

    return handle_forwarded


# First version whose clients know TOPIC_DELETION_DISABLED (KIP-322).
_DISABLED_SINCE = 3


def delete_topics(
    served: Mapping[int, ServedApi],
    forwarding: ControllerAccess,
    cluster: ClusterView,
    config: ParsedConfig,
) -> Handle:
    """Return the handler that deletes topics."""
    forward = forwarded(served, forwarding, cluster)
    is_enabled = config.boolean("delete.topic.enable")

    def handle_delete_topics(
        context: RequestContext, request: DeleteTopicsRequest
    ) -> Message | None:
        """Forward the request. The response follows when this broker has applied the deletion."""
        if not is_enabled and context.version < _DISABLED_SINCE:
            refusal = Refusal(ErrorCode.INVALID_REQUEST, "delete.topic.enable is false")
            return context.in_slices(refuse_delete_topics(request, refusal))
        return forward(context, request)

    return handle_delete_topics


_FIRST_WITH_ERROR = 1


def elect_leaders(forwarding: ControllerAccess) -> Handle:
    """Return the handler that runs leader elections."""

    def handle_elect_leaders(context: RequestContext, request: ElectLeadersRequest) -> None:
        """Forward the request. The response follows when the new leaders are committed."""

        def respond(response: ElectLeadersResponse) -> None:
            if context.version < _FIRST_WITH_ERROR:
                # v0 has error codes of partitions only.
                response.error_code = ErrorCode.NONE
            context.respond_forwarded(response)

        forwarding.send(request, respond, client_context=context)

    return handle_elect_leaders
