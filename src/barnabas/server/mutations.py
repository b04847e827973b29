"""Requests that make or delete partitions, within their client's quota of that (KIP-599)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.server.controller_access import ControllerAccess
    from barnabas.server.request import RequestContext


def forward_mutation(
    forwarding: ControllerAccess, context: RequestContext, request: Message, strict_since: int
) -> None:
    """Have the controller serve the request, and answer it.

    Args:
        strict_since: first version of the API whose clients know THROTTLING_QUOTA_EXCEEDED; older
            ones are served and wait afterwards.
    """
    quotas = context.quotas
    if not quotas.is_active:
        forwarding.send(request, context.respond_forwarded, asker=context)
        return
    mutations = quotas.mutation.allowance(
        context.user, context.client_id or "", context.version >= strict_since
    )

    def on_done(response: Any) -> None:
        context.respond_forwarded(response, 0 if mutations is None else mutations.throttle_ms())

    forwarding.send(request, on_done, mutations, context)
