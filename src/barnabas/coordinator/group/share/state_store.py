"""Access of the group coordinator to the share coordinators, which keep the state of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.delete_share_group_state import (
        DeleteShareGroupStateRequest,
        DeleteShareGroupStateResponse,
    )
    from barnabas.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse,
    )
    from barnabas.protocol.messages.read_share_group_state_summary import (
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryResponse,
    )


class ShareStateStore(Protocol):
    """The part of the persister that the coordinator uses (Kafka: Persister).

    Each method calls `on_response` exactly once, perhaps before it returns. Each partition of the
    request has its own error code in the response.
    """

    def initialize(
        self,
        request: InitializeShareGroupStateRequest,
        on_response: Callable[[InitializeShareGroupStateResponse], None],
    ) -> None:
        """Create the state of share partitions."""
        ...

    def delete(
        self,
        request: DeleteShareGroupStateRequest,
        on_response: Callable[[DeleteShareGroupStateResponse], None],
    ) -> None:
        """Delete the state of share partitions."""
        ...

    def read_summary(
        self,
        request: ReadShareGroupStateSummaryRequest,
        on_response: Callable[[ReadShareGroupStateSummaryResponse], None],
    ) -> None:
        """Read start offsets and delivery complete counts of share partitions."""
        ...
