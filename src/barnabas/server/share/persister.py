"""Reads and writes the state of share partitions at their share coordinators (KIP-932).

Kafka's DefaultStatePersister and PersisterStateManager. Each method takes the request of one group
with any topics and partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from barnabas.protocol.messages.read_share_group_state import (
        ReadShareGroupStateRequest,
        ReadShareGroupStateResponse,
    )
    from barnabas.protocol.messages.read_share_group_state_summary import (
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryResponse,
    )
    from barnabas.protocol.messages.write_share_group_state import (
        WriteShareGroupStateRequest,
        WriteShareGroupStateResponse,
    )


class Persister:
    """The broker's access to share coordinators, here and on other brokers.

    Each method calls `on_response` exactly once, perhaps before it returns. The response has each
    partition of the request once, with an error code of its own. A failure of the network or of a
    coordinator is the error of the partitions that it affects.
    """

    __slots__ = ()

    def initialize(
        self,
        request: InitializeShareGroupStateRequest,
        on_response: Callable[[InitializeShareGroupStateResponse], None],
    ) -> None:
        """Create the state of share partitions, or replace it in a newer state epoch."""
        raise NotImplementedError

    def read(
        self,
        request: ReadShareGroupStateRequest,
        on_response: Callable[[ReadShareGroupStateResponse], None],
    ) -> None:
        """Read start offsets and state batches. A newer leader epoch is stored."""
        raise NotImplementedError

    def write(
        self,
        request: WriteShareGroupStateRequest,
        on_response: Callable[[WriteShareGroupStateResponse], None],
    ) -> None:
        """Write start offsets and changed state batches."""
        raise NotImplementedError

    def delete(
        self,
        request: DeleteShareGroupStateRequest,
        on_response: Callable[[DeleteShareGroupStateResponse], None],
    ) -> None:
        """Delete the state of share partitions. Missing state is no error."""
        raise NotImplementedError

    def read_summary(
        self,
        request: ReadShareGroupStateSummaryRequest,
        on_response: Callable[[ReadShareGroupStateSummaryResponse], None],
    ) -> None:
        """Read epochs, start offsets and delivery complete counts without state batches."""
        raise NotImplementedError
