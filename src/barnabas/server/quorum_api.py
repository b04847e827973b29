"""What a controller's listener asks of the quorum's replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.schema import Message


class QuorumApi(Protocol):
    """Serves Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot and voters' changes."""

    def serve(self, request: Message, version: int, on_done: Callable[[Message], None]) -> None:
        """Answer a request of that version; `on_done` is called once, perhaps at once."""
        ...
