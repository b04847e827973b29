"""The partition counts of the topics of a topology while they are decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.streams.topology.configured_topology import TopicProblem
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.group.streams.topology.streams_status import StreamsStatus


class TopicProblemError(Exception):
    """The topics do not fit the topology."""

    def __init__(self, status: StreamsStatus, detail: str) -> None:
        super().__init__(detail)
        self.problem = TopicProblem(status, detail)


class PartitionCounts:
    """Partition counts by topic name."""

    __slots__ = ("_existing", "decided")

    def __init__(self, existing: Callable[[str], int]) -> None:
        # Returns the number of partitions of a topic, 0 if the topic does not exist.
        self._existing = existing
        # The counts of internal topics, which may exist or not.
        self.decided: dict[str, int] = {}

    def of(self, name: str) -> int:
        """Return the count of an existing topic, or else the decided one."""
        found = self._existing(name) or self.decided.get(name, 0)
        if found < 1:
            refuse_topology(f"The number of partitions of topic {name} is not known.")
        return found

    def existing(self, name: str) -> int:
        """Return the count of an existing topic; 0 if it does not exist."""
        return self._existing(name)


def refuse_topology(message: str) -> NoReturn:
    """Raise RefusalError for an invalid topology."""
    raise RefusalError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
