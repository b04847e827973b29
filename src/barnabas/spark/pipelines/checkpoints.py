"""Reads without Spark where the flows of a pipeline are: checkpoints, notes of runs, and status.

A checkpoint directory has `offsets/<batch>`, written before a batch, and `commits/<batch>`, written
after it. Both begin with a line "v1" and a line of JSON; in `offsets` a line for each source
follows. Spark keeps the newest hundred of them.

The checkpoints are Spark's and decide where a flow goes on. Runs add notes about what is not in
them, in `<storage>/_barnabas/notes.json`: the definition with which a flow ran, and the last
progress with its rows of state. Only the process that holds the run's lock writes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.runtime.disk import RealDisk
from barnabas.spark.pipelines.definition import FlowDefinition
from barnabas.spark.topics.offsets import Offsets, from_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from barnabas.client.topic_partition import TopicPartition
    from barnabas.spark.pipelines.project import Project

_STATE_METADATA = ("_metadata/metadata", "_metadata/v2")
_FILE = "notes.json"
BROKERS_OPTION = "kafka.bootstrap.servers"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The position at which a flow goes on, and its state."""

    # The target's name with catalog and database, or the sink's name, and the flow's own name.
    target: str
    flow: str
    path: Path
    # Id of the query. It changes when the flow starts anew.
    query_id: str
    # Newest batch with known offsets, and newest finished batch; -1 before the first. If they
    # differ, the next run repeats the batch with the same offsets.
    planned_batch: int = -1
    committed_batch: int = -1
    # Where the finished batch ended, by source: offsets of partitions, or another source's JSON.
    ends: tuple[Any, ...] = ()
    # Where the planned batch ends, by source. It fixes the order of the sources.
    planned_ends: tuple[Any, ...] = ()
    # Settings of Spark that the checkpoint fixes for all its batches.
    settings: Mapping[str, str] = field(default_factory=dict)
    # Milliseconds since 1970; 0 without watermark.
    watermark_ms: int = 0
    # Names of the stateful operators, in the order of their directories.
    operators: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name under which runs take notes of this flow."""
        return f"{self.target}/{self.flow}"

    @property
    def topic_offsets(self) -> Offsets:
        """The next offset to read of each partition, of all sources that are topics."""
        found: Offsets = {}
        for end in self.ends:
            if is_of_topics(end):
                found |= from_json(end)
        return found


def read_checkpoints(project: Project) -> list[Checkpoint]:
    """Return the newest checkpoint of each flow, sorted by target and flow."""
    newest: dict[tuple[str, str], tuple[int, Path]] = {}
    for path in _query_directories(project.checkpoints):
        *target, flow, version = path.relative_to(project.checkpoints).parts
        key, number = (".".join(target), flow), int(version)
        if key not in newest or newest[key][0] < number:
            newest[key] = (number, path)
    return [_read(*key, path) for key, (_, path) in sorted(newest.items())]


def _query_directories(root: Path) -> Iterator[Path]:
    """Yield the directories with a number as name and the file of a query's id.

    Directories below them belong to the query.
    """
    if not root.is_dir():
        return
    for path in sorted(root.iterdir()):
        if not path.is_dir():
            continue
        if path.name.isdigit() and (path / "metadata").is_file():
            yield path
        else:
            yield from _query_directories(path)


def _read(target: str, flow: str, path: Path) -> Checkpoint:
    planned, committed = _newest(path / "offsets"), _newest(path / "commits")
    planned_metadata, *planned_ends = _offsets(path, planned)
    metadata, *ends = _offsets(path, committed)
    watermark = 0
    if committed >= 0:
        commit, *_rest = _lines(path / "commits" / str(committed)) or [{}]
        watermark = max(
            int(commit.get("nextBatchWatermarkMs", 0)), int(metadata.get("batchWatermarkMs", 0))
        )
    return Checkpoint(
        target=target,
        flow=flow,
        path=path,
        query_id=json.loads((path / "metadata").read_text())["id"],
        planned_batch=planned,
        committed_batch=committed,
        ends=tuple(ends),
        planned_ends=tuple(planned_ends),
        settings=planned_metadata.get("conf", {}),
        watermark_ms=watermark,
        operators=_operators(path / "state"),
    )


def _offsets(path: Path, batch: int) -> list[Any]:
    """Return the metadata of a batch and the end of each source; empty metadata without any."""
    return (_lines(path / "offsets" / str(batch)) if batch >= 0 else []) or [{}]


def _newest(directory: Path) -> int:
    """Return the highest batch of a log; -1 if there is none. Other files belong to Spark."""
    if not directory.is_dir():
        return -1
    return max((int(path.name) for path in directory.iterdir() if path.name.isdigit()), default=-1)


def _lines(path: Path) -> list[Any]:
    """Return the lines below the version as values; None for a source without offset ("-").

    A file that is missing or was not written completely has no lines.
    """
    try:
        version, *lines = path.read_text().splitlines()
        if not version.startswith("v"):
            return []
        return [None if line == "-" else json.loads(line) for line in lines]
    except (FileNotFoundError, ValueError):
        return []


def _operators(directory: Path) -> tuple[str, ...]:
    """Return the names of the stateful operators; Spark notes them beside their state."""
    found = []
    if directory.is_dir():
        for path in sorted((p for p in directory.iterdir() if p.name.isdigit()), key=_number):
            for name in _STATE_METADATA:
                files = path / name
                newest = max(files.iterdir(), key=_number) if files.is_dir() else files
                if newest.is_file():
                    found.append(_operator_name(newest))
                    break
    return tuple(found)


def _number(path: Path) -> int:
    return int(path.name) if path.name.isdigit() else -1


def _operator_name(path: Path) -> str:
    for line in path.read_text().splitlines():
        if line.startswith("{"):
            return str(json.loads(line)["operatorInfo"]["operatorName"])
    return "unknown"


def is_of_topics(end: Any) -> bool:
    """Return whether a source's end in a checkpoint has offsets of topics."""
    return (
        isinstance(end, dict)
        and bool(end)
        and all(
            isinstance(partitions, dict)
            and all(name.isdigit() and isinstance(n, int) for name, n in partitions.items())
            for partitions in end.values()
        )
    )


@dataclass(slots=True)
class Notes:
    """Notes of all flows, by key of the flow."""

    definitions: dict[str, FlowDefinition] = field(default_factory=dict)
    # The last progress event of each flow.
    progress: dict[str, dict[str, Any]] = field(default_factory=dict)
    # How the last run ended, and when (ms since 1970); empty before the first.
    last_run: dict[str, Any] = field(default_factory=dict)


def read_notes(directory: Path) -> Notes:
    """Return the notes in a directory; empty ones if there are none."""
    try:
        value = json.loads((directory / _FILE).read_text())
    except FileNotFoundError:
        return Notes()
    return Notes(
        {key: FlowDefinition.from_json(each) for key, each in value["definitions"].items()},
        value["progress"],
        value["last_run"],
    )


def write_notes(directory: Path, notes: Notes) -> None:
    """Replace the notes in a directory. A kill leaves the old ones or the new ones."""
    directory.mkdir(parents=True, exist_ok=True)
    value = {
        "definitions": {key: each.to_json() for key, each in notes.definitions.items()},
        "progress": notes.progress,
        "last_run": notes.last_run,
    }
    data = json.dumps(value, indent=1).encode()
    RealDisk().write_atomically(str(directory / _FILE), data, sync=False)


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """First and end offsets of partitions; partitions that do not exist are missing."""

    starts: Offsets
    ends: Offsets


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """The position of a flow, compared with the ends of its topics."""

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
