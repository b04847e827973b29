"""Writes the changed states of one share partition to its share coordinator, in order (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.write_share_group_state import (
    PartitionData,
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.protocol.messages.write_share_group_state import WriteShareGroupStateResponse
    from barnabas.server.share.persister import Persister
    from barnabas.storage.topic_partition import TopicIdPartition


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    where: TopicIdPartition

    def __str__(self) -> str:
        return f"{self.group_id}:{self.where.topic}-{self.where.partition}"


# First offset, last offset, state and delivery count.
ChangedState = tuple[int, int, int, int]


class WrittenOffsets(msgspec.Struct, frozen=True):
    """Facts of the share partition that each write contains."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


class StateWriter:
    """A queue with at most one write in flight.

    Changes that wait for it are written together by the next one, so that the share coordinator
    gets them in order. All of them succeed or fail together.
    """

    __slots__ = ("_in_flight", "_key", "_offsets", "_persister", "_waiting")

    def __init__(
        self, key: SharePartitionKey, persister: Persister, offsets: Callable[[], WrittenOffsets]
    ) -> None:
        """Create the state writer.

        Args:
            key: the share partition.
            persister: sends the writes.
            offsets: returns the current facts of the share partition.
        """
        self._key = key
        self._persister = persister
        self._offsets = offsets
        # Changed states and their callbacks that the current write contains, and those that wait.
        self._in_flight: list[Callable[[ErrorCode], None]] = []
        self._waiting: list[tuple[list[ChangedState], Callable[[ErrorCode], None]]] = []

    @property
    def is_busy(self) -> bool:
        """Whether a change has no result yet."""
        return bool(self._in_flight or self._waiting)

    def write(
        self, states: Sequence[ChangedState], on_written: Callable[[ErrorCode], None]
    ) -> None:
        """Write states.

        Args:
            states: the changed states.
            on_written: called with the result; may be called before this returns.
        """
        self._waiting.append((list(states), on_written))
        self._send_next()

    def _send_next(self) -> None:
        if self._in_flight or not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._in_flight = [on_written for _, on_written in waiting]
        offsets = self._offsets()
        data = PartitionData(
            partition=self._key.where.partition,
            state_epoch=offsets.state_epoch,
            leader_epoch=offsets.leader_epoch,
            start_offset=offsets.start_offset,
            delivery_complete_count=offsets.delivery_complete_count,
            state_batches=[
                StateBatch(
                    first_offset=first,
                    last_offset=last,
                    delivery_state=int(state),
                    delivery_count=count,
                )
                for states, _ in waiting
                for first, last, state, count in states
            ],
        )
        topic = WriteStateData(topic_id=self._key.where.topic_id, partitions=[data])
        self._persister.write(
            WriteShareGroupStateRequest(group_id=self._key.group_id, topics=[topic]),
            self._on_response,
        )

    def _on_response(self, response: WriteShareGroupStateResponse) -> None:
        error = ErrorCode.of(response.results[0].partitions[0].error_code)
        written, self._in_flight = self._in_flight, []
        try:
            for on_written in written:
                on_written(error)
        finally:
            self._send_next()
