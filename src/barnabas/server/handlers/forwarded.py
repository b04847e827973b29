"""Requests that go to the active controller unchanged, whatever their API (KIP-590).

On a controller's listeners, the same handler passes them to the controller of the process. The
differences between APIs are in the rows of `controller/apis.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.controller.apis import strict_version

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies


def handler(dependencies: NodeDependencies) -> Handle:
    """Return the handler that forwards requests."""

    def handle_forwarded(context: RequestContext, request: Message) -> None:
        forward_request(dependencies, context, request)

    return handle_forwarded


def forward_request(
    dependencies: NodeDependencies, context: RequestContext, request: Message
) -> None:
    """Forward the request. The response follows when its changes are committed.

    Requests that create or delete partitions count for the mutation quota of the client (KIP-599).
    Their response also waits until this broker has applied the change.
    """
    strict_since = strict_version(request.__api_key__)
    if strict_since is None:
        dependencies.forwarding.send(request, context.respond_forwarded, client_context=context)
        return
    mutations = None
    if context.quotas.is_active:
        mutations = context.quotas.mutation.allowance(
            context.user, context.client_id or "", context.version >= strict_since
        )

    def on_done(response: Any) -> None:
        throttle_ms = 0 if mutations is None else mutations.throttle_ms()
        dependencies.cluster.backlog.when_empty(
            lambda: context.respond_forwarded(response, throttle_ms)
        )

    dependencies.forwarding.send(request, on_done, mutations, context)
