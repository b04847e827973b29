"""How handlers reach the active controller, wherever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.controller.result import MutationLimit
    from barnabas.protocol.schema import Message
    from barnabas.server.request import RequestContext


class ControllerAccess(Protocol):
    """Hands requests to the active controller."""

    def send(
        self,
        request: Message,
        on_done: Callable[[Any], None],
        mutations: MutationLimit | None = None,
        asker: RequestContext | None = None,
    ) -> None:
        """Have the controller serve `request`.

        Args:
            on_done: called once with the response, when what it says is committed, or when the
                request's time is up; perhaps before this returns.
            mutations: what the asker may still change, for the APIs that count it.
            asker: whose request it is; None: this node's own.
        """
        ...
