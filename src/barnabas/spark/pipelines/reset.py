"""Plans the reset of datasets, and names what is lost by it.

Measured with PySpark 4.2.1: a full refresh of a table empties it and gives its flows new
checkpoints. It does nothing for a sink and reports success, so the checkpoint of a sink's flow is
removed here. A flow that reads the table as a stream takes all rows of the new table for new ones.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.pipelines.project import ProjectError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.topic_partition import TopicPartition
    from barnabas.spark.pipelines.checkpoints import Checkpoint, Notes, TopicBounds
    from barnabas.spark.pipelines.project import Project


@dataclass(frozen=True, slots=True)
class DatasetReset:
    """The reset of one table or sink."""

    name: str
    is_sink: bool
    checkpoints: tuple[Checkpoint, ...]
    # Size of the table's files in bytes; 0 for a sink.
    size: int
    # Sentences about what cannot be restored by reading the sources again.
    lost: tuple[str, ...]
    # Sentences about rows that other datasets or topics get twice.
    repeated: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The resets in the order of the names."""

    resets: tuple[DatasetReset, ...]

    @property
    def tables(self) -> tuple[str, ...]:
        """Names for a full refresh."""
        return tuple(reset.name for reset in self.resets if not reset.is_sink)

    @property
    def sinks(self) -> tuple[DatasetReset, ...]:
        """Resets that remove checkpoints."""
        return tuple(reset for reset in self.resets if reset.is_sink)


@dataclass(frozen=True, slots=True)
class PipelineState:
    """The state of a pipeline, as far as it is known without Spark."""

    project: Project
    checkpoints: Sequence[Checkpoint]
    notes: Notes
    # None if no broker was asked.
    bounds: TopicBounds | None


def plan_reset(state: PipelineState, names: Sequence[str]) -> ResetPlan:
    """Return what resetting the datasets means.

    Raises:
        ProjectError: a dataset has no checkpoint, or a table that reads one of the datasets would
            have rows twice because it is not reset too.
    """
    targets = _targets(state, names)
    for name, target in targets.items():
        for reader in _readers(state, target):
            if reader.target not in targets.values() and not _is_sink(state.project, reader.target):
                short = _named(state.project, reader.target)
                raise ProjectError(
                    f"{short} reads {name} as a stream: it would get all its rows a second time. "
                    f"See what it costs to reset both: barnabas pipeline reset "
                    f"{' '.join([*names, short])}"
                )
    return ResetPlan(tuple(_reset(state, name, target) for name, target in targets.items()))


def remove_sink_checkpoints(plan: ResetPlan) -> None:
    """Remove the checkpoints of the sinks; the caller holds the run's lock."""
    for reset in plan.sinks:
        for checkpoint in reset.checkpoints:
            shutil.rmtree(checkpoint.path.parent)


def _targets(state: PipelineState, names: Sequence[str]) -> dict[str, str]:
    """Return the targets of checkpoints by given name."""
    known = {checkpoint.target for checkpoint in state.checkpoints}
    by_name = {_named(state.project, target): target for target in sorted(known)}
    targets = {}
    for name in names:
        if name not in by_name:
            there = ", ".join(sorted(by_name)) or "no checkpoints yet"
            raise ProjectError(
                f"{name} has no checkpoint. Materialized views have none, because each run "
                f"computes them again. There are: {there}"
            )
        targets[name] = by_name[name]
    return targets


def _reset(state: PipelineState, name: str, target: str) -> DatasetReset:
    checkpoints = tuple(each for each in state.checkpoints if each.target == target)
    is_sink = _is_sink(state.project, target)
    repeated = [
        f"{reader.target} gets all rows of {name} again, from flow {reader.flow}"
        for reader in _readers(state, target)
        if _is_sink(state.project, reader.target)
    ]
    if is_sink:
        repeated.append(f"{name} gets all rows again; those that it has already stay in it")
    return DatasetReset(
        name,
        is_sink,
        checkpoints,
        0 if is_sink else _size(state.project, target),
        tuple(sentence for each in checkpoints for sentence in _lost(state, each)),
        tuple(repeated),
    )


def _lost(state: PipelineState, checkpoint: Checkpoint) -> list[str]:
    lost = []
    if checkpoint.operators:
        rows = state.notes.progress.get(checkpoint.key, {}).get("state_rows")
        lost.append(
            f"the state of {', '.join(checkpoint.operators)}"
            + (f", {rows} rows" if rows is not None else "")
            + ", which is computed again from the records that are still there"
        )
    bounds = state.bounds
    if bounds is not None:
        gone: Mapping[TopicPartition, int] = {
            tp: bounds.starts[tp] for tp in checkpoint.topic_offsets if bounds.starts.get(tp, 0) > 0
        }
        lost += [
            f"what came from {tp} before offset {start}: these records were deleted from the topic"
            for tp, start in sorted(gone.items())
        ]
        lost += [
            f"what came from {tp}: the partition does not exist any more"
            for tp in sorted(checkpoint.topic_offsets)
            if tp not in bounds.ends
        ]
    definition = state.notes.definitions.get(checkpoint.key)
    for source in definition.sources if definition is not None else ():
        starting = source.options.get("startingoffsets")
        if source.format == "barnabas" and (starting is None or starting == "latest"):
            lost.append(
                f"all rows so far: flow {checkpoint.flow} has no startingOffsets=earliest, so it "
                "reads only what is written after the reset"
            )
    return lost


def _readers(state: PipelineState, target: str) -> list[Checkpoint]:
    """Return the checkpoints of flows that read a table as a stream."""
    readers = []
    for checkpoint in state.checkpoints:
        definition = state.notes.definitions.get(checkpoint.key)
        for source in definition.sources if definition is not None else ():
            if source.format == "table" and (
                state.project.qualified(source.options["name"]) == target
            ):
                readers.append(checkpoint)
                break
    return readers


def _is_sink(project: Project, target: str) -> bool:
    """Return whether a target is a sink: Spark gives tables a catalog and a database."""
    return target.count(".") < project.qualified("t").count(".")


def _size(project: Project, target: str) -> int:
    files = project.table_directory(target).rglob("*")
    return sum(path.stat().st_size for path in files if path.is_file())


def _named(project: Project, target: str) -> str:
    """Return a dataset's name as definitions of the project have it."""
    return target.removeprefix(f"{project.catalog}.").removeprefix(f"{project.database}.")
