"""Producer ids from blocks that the controller allocates (KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.nodes import AllocateProducerIdsResponse
    from barnabas.server.controller_access.controller_access import ControllerAccess

    # Called with a producer id and NONE, or with -1 and an error.
    OnProducerId = Callable[[int, ErrorCode], None]

NO_PRODUCER_ID = -1
_WAITING_MAX = 10_000


class ProducerIds:
    """Assigns producer ids that are unique in the cluster."""

    __slots__ = ("_broker_epoch", "_end", "_forwarding", "_next", "_node_id", "_waiting")

    def __init__(
        self, node_id: int, broker_epoch: Callable[[], int], forwarding: ControllerAccess
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._forwarding = forwarding
        # Unused ids of the current block: `_next` is inclusive, `_end` is exclusive.
        self._next = 0
        self._end = 0
        # Callbacks that wait for the next block, in order. Not empty while a request is pending.
        self._waiting: list[OnProducerId] = []

    def next_id(self, on_id: OnProducerId) -> None:
        """Call `on_id` with a new id, before this method returns if the block has unused ids."""
        if self._next < self._end:
            self._next += 1
            on_id(self._next - 1, ErrorCode.NONE)
            return
        if len(self._waiting) >= _WAITING_MAX:
            on_id(NO_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        self._waiting.append(on_id)
        if len(self._waiting) == 1:
            self._request_block()

    def _request_block(self) -> None:
        from barnabas.protocol.messages.nodes import AllocateProducerIdsRequest

        request = AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch()
        )
        self._forwarding.send(request, self._on_block)

    def _on_block(self, response: AllocateProducerIdsResponse) -> None:
        waiting, self._waiting = self._waiting, []
        if response.error_code:
            for on_id in waiting:
                # The request was valid, so return an error that makes the producer retry.
                on_id(NO_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        self._next = response.producer_id_start
        self._end = response.producer_id_start + response.producer_id_len
        for on_id in waiting:
            self.next_id(on_id)
