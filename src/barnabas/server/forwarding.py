"""The way of a request that changes metadata: to the active controller (KIP-590).

A call where this process has the active controller, else over the network. The caller does not see
which: it hands over a request and is called back with the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.controller.result import MutationLimit
    from barnabas.protocol.schema import Message
    from barnabas.server.local_controller import LocalController
    from barnabas.server.request import RequestContext


class Forwarding:
    """Sends a request to the active controller."""

    __slots__ = ("_local",)

    def __init__(self, local: LocalController) -> None:
        self._local = local

    def send(
        self,
        request: Message,
        on_done: Callable[[Any], None],
        mutations: MutationLimit | None = None,
        asker: RequestContext | None = None,
    ) -> None:
        """See `ControllerAccess.send`."""
        self._local.send(request, on_done, mutations, asker)
