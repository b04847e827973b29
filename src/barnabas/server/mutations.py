"""Requests that make or delete partitions, within their client's quota of that (KIP-599)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.server.parts import NodeParts
    from barnabas.server.request import RequestContext


def forward_mutation(
    parts: NodeParts, context: RequestContext, request: Message, strict_since: int
) -> None:
    """Have the controller serve the request, and answer it when this broker has done its part.

    Args:
        parts: of the node that was asked.
        strict_since: first version of the API whose clients know THROTTLING_QUOTA_EXCEEDED; older
            ones are served and wait afterwards.
    """
    quotas, forwarding, backlog = context.quotas, parts.forwarding, parts.cluster.backlog
    if not quotas.is_active:

        def answer(response: Any) -> None:
            backlog.when_empty(lambda: context.respond_forwarded(response))

        forwarding.send(request, answer, asker=context)
        return
    mutations = quotas.mutation.allowance(
        context.user, context.client_id or "", context.version >= strict_since
    )

    def on_done(response: Any) -> None:
        throttle_ms = 0 if mutations is None else mutations.throttle_ms()
        backlog.when_empty(lambda: context.respond_forwarded(response, throttle_ms))

    forwarding.send(request, on_done, mutations, context)
