"""Forwarding of requests that create or delete partitions, with the mutation quota (KIP-599)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.server.handlers.dependencies import NodeParts


def forward_mutation(
    parts: NodeParts, context: RequestContext, request: Message, strict_since: int
) -> None:
    """Forward the request to the controller. Respond once this broker has applied the change.

    Args:
        parts: parts of the node that received the request.
        context: context of the request.
        request: request that creates or deletes partitions.
        strict_since: first version whose clients know THROTTLING_QUOTA_EXCEEDED. Requests of older
            versions are served, and their clients are throttled afterwards.
    """
    quotas, forwarding, backlog = context.quotas, parts.forwarding, parts.cluster.backlog
    if not quotas.is_active:

        def answer(response: Any) -> None:
            backlog.when_empty(lambda: context.respond_forwarded(response))

        forwarding.send(request, answer, client_context=context)
        return
    mutations = quotas.mutation.allowance(
        context.user, context.client_id or "", context.version >= strict_since
    )

    def on_done(response: Any) -> None:
        throttle_ms = 0 if mutations is None else mutations.throttle_ms()
        backlog.when_empty(lambda: context.respond_forwarded(response, throttle_ms))

    forwarding.send(request, on_done, mutations, context)
