"""API of the quorum replica for the listeners of a controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.schema import Message


class QuorumApi(Protocol):
    """Serves Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot and voter changes."""

    def serve(self, request: Message, version: int, on_done: Callable[[Message], None]) -> None:
        """Serve a request of this version. `on_done` is called once, perhaps immediately."""
        ...
