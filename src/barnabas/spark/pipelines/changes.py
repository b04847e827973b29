"""Compares the definitions of a pipeline with what its checkpoints were made by.

A checkpoint fits one query. For some changes Spark fails after its start and three attempts; for
others it continues, and loses rows or state, or writes rows twice. Measured with PySpark 4.2.1:

| change | what Spark does |
|---|---|
| a stateful operator is removed | fails: STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA |
| the source has another topic | our source fails: the partitions of the checkpoint are missing |
| the sink has another topic | continues: the new topic gets new rows only |
| a flow has another name | begins anew: its target gets all rows a second time |
| a table has another name | begins anew: the old table and its checkpoint stay |
| a table has another column | adds it, with null in old rows; so this is no change here |

Flows in SQL files are not examined, because only Spark parses them, nor flows of Auto CDC. The
state of a flow in Python that reads a view of an SQL file is not examined either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.offsets import parse_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from barnabas.spark.pipelines.checkpoints import Checkpoint
    from barnabas.spark.pipelines.definition import FlowDefinition, StreamSource

# Options that say from where a query without a checkpoint reads.
_STARTING = (
    "startingoffsets",
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
)


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between a definition and its checkpoint."""

    flow: str
    # The dataset or sink to reset.
    target: str
    # What differs and what would happen, and how to go on.
    problem: str
    remedy: str
    # Whether the run must not start. Otherwise the change is only reported.
    is_refused: bool = True


@dataclass(frozen=True, slots=True)
class Definitions:
    """The definitions of a pipeline."""

    flows: Sequence[FlowDefinition]
    # Whether SQL files or Auto CDC define further flows, which are not examined.
    is_partial: bool = False


def find_changes(
    definitions: Definitions,
    checkpoints: Sequence[Checkpoint],
    noted: Mapping[str, FlowDefinition],
) -> list[Change]:
    """Return the changes since the checkpoints were made, refused ones first.

    Args:
        definitions: the definitions of the next run.
        checkpoints: the checkpoints of all flows.
        noted: by key, the definitions with which the flows ran last. A pipeline that ran without
            these notes is compared with its checkpoints only.
    """
    found: list[Change] = []
    by_key = {checkpoint.key: checkpoint for checkpoint in checkpoints}
    for flow in definitions.flows:
        checkpoint = by_key.get(flow.key)
        if checkpoint is not None and checkpoint.planned_batch >= 0:
            found += _changes_of_flow(flow, checkpoint, noted.get(flow.key))
    if not definitions.is_partial:
        found += _renamed_and_removed(definitions.flows, by_key, noted)
    return sorted(found, key=lambda change: not change.is_refused)


def _changes_of_flow(
    flow: FlowDefinition, checkpoint: Checkpoint, before: FlowDefinition | None
) -> Iterator[Change]:
    reset = f"barnabas pipeline reset {_short(flow.target)}"

    def refused(problem: str, remedy: str = "") -> Change:
        return Change(flow.flow, flow.target, problem, remedy or f"start it anew: {reset}")

    def noticed(problem: str, remedy: str) -> Change:
        return Change(flow.flow, flow.target, problem, remedy, is_refused=False)

    if not flow.is_streaming:
        yield refused(
            "it was a stream and is none now. Its checkpoint would be ignored, and the table "
            "written anew from what the source has today"
        )
        return
    yield from map(refused, _lost_topics(flow, checkpoint))
    yield from map(refused, _state_changes(flow, checkpoint, before))
    if before is None:
        return
    if _shape(flow.sources) != _shape(before.sources):
        yield refused(
            f"it reads {_named(flow.sources)}, before {_named(before.sources)}. Checkpoints have "
            "offsets by the position of a source, so these offsets would go to a wrong one"
        )
    else:
        yield from _option_changes(flow, before, noticed)
    if flow.sink != before.sink and flow.sink is not None and before.sink is not None:
        differing = _differing(flow.sink.options, before.sink.options)
        if flow.sink.format != before.sink.format or set(differing) & {"topic", "path"}:
            yield refused(
                f"its sink is another one ({_assignments(differing) or flow.sink.format}). Rows "
                "that the old sink has would not come to the new one",
                f"give the new sink a new name, or write all rows to it: {reset}",
            )


def _lost_topics(flow: FlowDefinition, checkpoint: Checkpoint) -> Iterator[str]:
    """Describe topics that the checkpoint has and the definition no longer reads."""
    topics: set[str] = set()
    for source in flow.sources:
        read = _topics(source)
        if source.format != "table" and read is None:
            return
        topics |= read or set()
    had = {tp.topic for tp in checkpoint.topic_offsets}
    gone = sorted(had - topics)
    if gone and topics:
        yield (
            f"it no longer reads {', '.join(gone)}, but {', '.join(sorted(topics))}. Its "
            f"checkpoint has offsets of {', '.join(sorted(had))}: the query would fail, or skip "
            "what it has not read of the old topic"
        )


def _topics(source: StreamSource) -> set[str] | None:
    """Return the topics of a source; None if they are unknown, as with a pattern."""
    if "subscribe" in source.options:
        return {name.strip() for name in source.options["subscribe"].split(",") if name.strip()}
    if "assign" in source.options:
        try:
            return {tp.topic for tp in parse_partitions("assign", source.options["assign"])}
        except ValueError:
            return None
    return None


def _state_changes(
    flow: FlowDefinition, checkpoint: Checkpoint, before: FlowDefinition | None
) -> Iterator[str]:
    has = ", ".join(checkpoint.operators)
    if not flow.is_complete:
        return
    if checkpoint.operators and not flow.operators:
        yield (
            f"it no longer keeps state, but its checkpoint has that of {has}. Spark would refuse "
            "it; rows that are in the state only, such as open windows, would be lost"
        )
    elif flow.operators and not checkpoint.operators and checkpoint.committed_batch >= 0:
        kinds = ", ".join(operator.kind for operator in flow.operators)
        yield (
            f"it keeps state now ({kinds}), and its checkpoint has none: what was read already "
            "would not be in it"
        )
    elif before is not None and flow.operators != before.operators:
        if [each.kind for each in flow.operators] != [each.kind for each in before.operators]:
            what = f"its state is of {_kinds(flow)}, before of {_kinds(before)}, which does not fit"
        else:
            what = (
                f"the keys, windows or functions of its {_kinds(flow)} changed. Spark would fail, "
                "or mix new results with old state"
            )
        yield what


def _kinds(flow: FlowDefinition) -> str:
    return ", ".join(operator.kind for operator in flow.operators) or "nothing"


def _option_changes(
    flow: FlowDefinition, before: FlowDefinition, noticed: object
) -> Iterator[Change]:
    assert callable(noticed)
    for now, then in zip(flow.sources, before.sources, strict=True):
        differing = _differing(now.options, then.options)
        starting = {name: values for name, values in differing.items() if name in _STARTING}
        if starting:
            yield noticed(
                f"{_assignments(starting)} has no effect: the checkpoint says where to go on",
                f"to read from there: barnabas pipeline reset {_short(flow.target)}",
            )
        if "kafka.bootstrap.servers" in differing:
            yield noticed(
                f"{_assignments({k: differing[k] for k in ('kafka.bootstrap.servers',)})}. Offsets "
                "of the checkpoint mean nothing in another cluster",
                "reset it if these brokers are of another cluster: "
                f"barnabas pipeline reset {_short(flow.target)}",
            )


def _renamed_and_removed(
    flows: Sequence[FlowDefinition],
    checkpoints: Mapping[str, Checkpoint],
    noted: Mapping[str, FlowDefinition],
) -> Iterator[Change]:
    defined = {flow.key for flow in flows}
    removed = [each for key, each in checkpoints.items() if key not in defined]
    new = [flow for flow in flows if flow.is_streaming and flow.key not in checkpoints]
    explained = set()
    for flow in new:
        for old in removed:
            before = noted.get(old.key)
            if old.target == flow.target and (
                before is None or _shape(before.sources) == _shape(flow.sources)
            ):
                explained.add(old.key)
                yield Change(
                    flow.flow,
                    flow.target,
                    f"it is new, and flow {old.flow}, which wrote to {_short(flow.target)} too, is "
                    f"gone. If it was renamed, it would read all of its source again, and "
                    f"{_short(flow.target)} would have these rows twice",
                    f"name it {old.flow} again, or write all rows anew: barnabas pipeline reset "
                    f"{_short(flow.target)}",
                )
    for old in removed:
        if old.key not in explained:
            yield Change(
                old.flow,
                old.target,
                f"no definition has it any more. {_short(old.target)} and its checkpoint stay as "
                "they are; under a new name a dataset begins anew",
                f"if it is not needed, delete {old.path.parent}",
                is_refused=False,
            )


def _shape(sources: Sequence[StreamSource]) -> list[tuple[str, str]]:
    """Return what must be equal of sources: their kinds in order, and the names of tables."""
    return [(source.format, source.options.get("name", "")) for source in sources]


def _named(sources: Sequence[StreamSource]) -> str:
    return ", ".join(
        source.options["name"] if source.format == "table" else source.format for source in sources
    )


def _differing(
    now: Mapping[str, str], then: Mapping[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    return {
        name: (then.get(name), now.get(name))
        for name in sorted({*now, *then})
        if now.get(name) != then.get(name)
    }


def _assignments(differing: Mapping[str, tuple[str | None, str | None]]) -> str:
    return ", ".join(f"{name} {then} → {now}" for name, (then, now) in differing.items())


def _short(name: str) -> str:
    """Return a dataset's own name, without catalog and database."""
    return name.rsplit(".", 1)[-1]
