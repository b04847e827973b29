"""The state of a pipeline's flows from its checkpoints, compared with the ends of the topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.topic_partition import TopicPartition
    from barnabas.spark.offsets import Offsets
    from barnabas.spark.pipelines.checkpoints import Checkpoint
    from barnabas.spark.pipelines.notes import Notes

BROKERS_OPTION = "kafka.bootstrap.servers"


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """First and end offsets of partitions; partitions that do not exist are missing."""

    starts: Offsets
    ends: Offsets


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """Where a flow is."""

    checkpoint: Checkpoint
    # By partition: records that the flow has not read; None if the partition does not exist.
    lag: Mapping[TopicPartition, int | None]
    # By partition: records that were deleted before the flow read them. Only partitions with some.
    lost: Mapping[TopicPartition, int]
    # The last progress that a run reported of this checkpoint; empty if there is none.
    progress: Mapping[str, Any]

    @property
    def lag_by_topic(self) -> dict[str, int | None]:
        """The sum over the partitions of each topic; None if a partition does not exist."""
        found: dict[str, int | None] = {}
        for tp, behind in self.lag.items():
            before = found.get(tp.topic, 0)
            found[tp.topic] = None if before is None or behind is None else before + behind
        return found

    @property
    def has_unfinished_batch(self) -> bool:
        """Whether a run was ended within a batch, which the next run repeats."""
        return self.checkpoint.planned_batch > self.checkpoint.committed_batch

    @property
    def state_rows(self) -> int | None:
        """Rows of state after the last reported batch; None if the flow has no state."""
        rows = self.progress.get("state_rows")
        return None if rows is None else int(rows)


def flow_statuses(
    checkpoints: Sequence[Checkpoint], notes: Notes, bounds: TopicBounds | None
) -> list[FlowStatus]:
    """Return the status of each flow.

    Args:
        checkpoints: the newest checkpoints.
        notes: the notes of the runs.
        bounds: of all partitions in the checkpoints; None leaves the lag unknown.
    """
    found = []
    for checkpoint in checkpoints:
        offsets = checkpoint.topic_offsets
        progress = notes.progress.get(checkpoint.key, {})
        if progress.get("query") != checkpoint.query_id:
            progress = {}
        lag: dict[TopicPartition, int | None] = dict.fromkeys(offsets)
        lost = {}
        if bounds is not None:
            for tp, offset in offsets.items():
                if tp in bounds.ends:
                    lag[tp] = max(0, bounds.ends[tp] - offset)
                    if bounds.starts[tp] > offset:
                        lost[tp] = bounds.starts[tp] - offset
        found.append(FlowStatus(checkpoint, lag, lost, progress))
    return found


def noted_brokers(notes: Notes) -> str | None:
    """Return the brokers of the first source that names some."""
    for definition in notes.definitions.values():
        for source in definition.sources:
            if BROKERS_OPTION in source.options:
                return source.options[BROKERS_OPTION]
    return None
