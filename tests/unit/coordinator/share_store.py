"""The share coordinators of a cluster and the leaders of its partitions, in memory."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    delete_share_group_state as deleting,
    initialize_share_group_state as initializing,
    read_share_group_state_summary as summary,
)

Place = tuple[str, bytes, int]


class ShareStore:
    """State by group, topic id and partition. Responses come at once, or with `release`."""

    def __init__(self) -> None:
        # Start offset and state epoch.
        self.states: dict[Place, tuple[int, int]] = {}
        # Number of records after the start offset whose delivery is complete.
        self.complete: dict[Place, int] = {}
        # Partitions whose requests fail.
        self.failing: dict[int, ErrorCode] = {}
        self.is_held = False
        self._held: list[Callable[[], None]] = []

    def release(self) -> None:
        """Respond to the held requests."""
        held, self._held = self._held, []
        for respond in held:
            respond()

    def _respond(self, act: Callable[[], None]) -> None:
        if self.is_held:
            self._held.append(act)
        else:
            act()

    def initialize(self, request, on_response) -> None:
        def act() -> None:
            results = []
            for topic in request.topics:
                found = []
                for each in topic.partitions:
                    error = self.failing.get(each.partition, ErrorCode.NONE)
                    if error is ErrorCode.NONE:
                        place = (request.group_id, topic.topic_id, each.partition)
                        self.states[place] = (each.start_offset, each.state_epoch)
                    found.append(
                        initializing.PartitionResult(
                            partition=each.partition,
                            error_code=error,
                            error_message=error.message if error else None,
                        )
                    )
                results.append(
                    initializing.InitializeStateResult(topic_id=topic.topic_id, partitions=found)
                )
            on_response(initializing.InitializeShareGroupStateResponse(results=results))

        self._respond(act)

    def delete(self, request, on_response) -> None:
        def act() -> None:
            results = []
            for topic in request.topics:
                found = []
                for each in topic.partitions:
                    error = self.failing.get(each.partition, ErrorCode.NONE)
                    if error is ErrorCode.NONE:
                        place = (request.group_id, topic.topic_id, each.partition)
                        self.states.pop(place, None)
                    found.append(
                        deleting.PartitionResult(partition=each.partition, error_code=error)
                    )
                results.append(
                    deleting.DeleteStateResult(topic_id=topic.topic_id, partitions=found)
                )
            on_response(deleting.DeleteShareGroupStateResponse(results=results))

        self._respond(act)

    def read_summary(self, request, on_response) -> None:
        def act() -> None:
            results = []
            for topic in request.topics:
                found = []
                for each in topic.partitions:
                    place = (request.group_id, topic.topic_id, each.partition)
                    offset, epoch = self.states.get(place, (-1, 0))
                    error = ErrorCode.NONE
                    if place not in self.states:
                        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    found.append(
                        summary.PartitionResult(
                            partition=each.partition,
                            error_code=error,
                            state_epoch=epoch,
                            leader_epoch=3,
                            start_offset=offset,
                            delivery_complete_count=self.complete.get(place, 0),
                        )
                    )
                results.append(
                    summary.ReadStateSummaryResult(topic_id=topic.topic_id, partitions=found)
                )
            on_response(summary.ReadShareGroupStateSummaryResponse(results=results))

        self._respond(act)


class LatestOffsets:
    """Latest offsets, or errors, by topic and partition."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, int], int | ErrorCode] = {}

    def find(self, partitions, on_found) -> None:
        on_found({each: self.offsets[tuple(each)] for each in partitions})
