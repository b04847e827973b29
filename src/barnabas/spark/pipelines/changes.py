"""Compares the definitions of a pipeline with what earlier runs made: checkpoints, tables, state.

A checkpoint fits one query. For some changes Spark fails after its start and three attempts; for
others it continues, and loses rows or state, or writes rows twice. Measured with PySpark 4.2.1:

| change | what Spark does |
|---|---|
| a stateful operator is removed | fails: STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA |
| the source has another topic | our source fails: the partitions of the checkpoint are missing |
| the sides of a join change places | our source fails in the same way |
| the sink has another topic | continues: the new topic gets new rows only |
| a flow has another name | begins anew: its target gets all rows a second time |
| a table has another name | begins anew: the old table and its checkpoint stay |
| a table is gone | makes an empty one, and continues: the table has new rows only |
| a table has another column | adds it, with null in old rows; so this is no change here |
| a column has another type | fails without its name: CANNOT_MERGE_INCOMPATIBLE_DATA_TYPE |
| another `spark.sql.shuffle.partitions` | continues with the number of the checkpoint |

Flows in SQL files are not examined, because only Spark parses them, nor flows of Auto CDC. The
state of a flow in Python that reads a view of an SQL file is not examined either.

Each refused change comes with a way out that costs nothing, and then with a reset and its cost. A
reset is never the only advice, and never the first: it deletes rows of a table, or sends rows to a
sink that has them already.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.spark.pipelines.checkpoints import is_of_topics
from barnabas.spark.topics.offsets import parse_partitions

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
_BROKERS = "kafka.bootstrap.servers"
# Nested types: an array's element type and the like can be merged if their parts can.
_PARTS = ("elementType", "keyType", "valueType")


def or_reset(safe: str, flow: FlowDefinition, flows: Sequence[FlowDefinition]) -> str:
    """Return a way out without cost, followed by the reset of the flow's target and its cost.

    Args:
        safe: what to do without a reset.
        flow: a flow into the dataset or sink.
        flows: all flows of the pipeline.
    """
    command = f"barnabas pipeline reset {own_name(flow.target)}"
    return f"{safe}. Or start anew: {command}, which {_cost(flow, flows)}"


def _cost(flow: FlowDefinition, flows: Sequence[FlowDefinition]) -> str:
    name = own_name(flow.target)
    if flow.sink is not None:
        return (
            f"writes all rows to {name} again; the rows that {name} has stay, and are there twice"
        )
    sinks = sorted({
        own_name(each.target)
        for each in flows
        if each.sink is not None and _reads(each, flow.target)
    })  # fmt: skip
    twice = f"; {' and '.join(sinks)} gets all its rows a second time" if sinks else ""
    return (
        f"empties {name} and fills it from what its sources have today: rows whose records were "
        f"deleted are lost{twice}"
    )


def _reads(flow: FlowDefinition, table: str) -> bool:
    return any(
        source.format == "table" and own_name(source.options["name"]) == own_name(table)
        for source in flow.sources
    )


def own_name(name: str) -> str:
    """Return a dataset's own name, without catalog, database and backticks."""
    return name.replace("`", "").rsplit(".", 1)[-1]


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between a definition and its checkpoint, or something that the run lacks."""

    flow: str
    # The dataset or sink of the flow.
    target: str
    # What differs and what would happen, and how to go on.
    problem: str
    remedy: str
    # Whether the run must not start. Otherwise the change is only reported.
    is_refused: bool = True
    # Whether a reset of the target removes the difference.
    is_of_checkpoint: bool = True


@dataclass(frozen=True, slots=True)
class Definitions:
    """The definitions of a pipeline."""

    flows: Sequence[FlowDefinition]
    # Whether SQL files or Auto CDC define further flows, which are not examined.
    is_partial: bool = False
    # By key of a flow: settings of Spark with which it is to run.
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def find_changes(
    definitions: Definitions,
    checkpoints: Sequence[Checkpoint],
    noted: Mapping[str, FlowDefinition],
) -> list[Change]:
    """Return the changes since the checkpoints were made.

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
            compared = _Compared(flow, checkpoint, noted.get(flow.key), definitions)
            found += compared.changes()
    if not definitions.is_partial:
        found += _renamed_and_removed(definitions.flows, by_key, noted)
    return found


@dataclass(frozen=True, slots=True)
class _Compared:
    """A flow beside its checkpoint and its definition of the last run."""

    flow: FlowDefinition
    checkpoint: Checkpoint
    before: FlowDefinition | None
    definitions: Definitions

    def changes(self) -> Iterator[Change]:
        if not self.flow.is_streaming:
            yield self._refused(
                "it was a stream and is none now. Its checkpoint would be ignored, and the table "
                "written anew from what the source has today",
                "read its source with readStream again, or give the new dataset a name of its own",
            )
            return
        yield from self._lost_topics()
        yield from self._state_changes()
        yield from self._setting_changes()
        if self.before is None:
            return
        if _shape(self.flow.sources) != _shape(self.before.sources):
            yield self._refused(
                f"it reads {_named(self.flow.sources)}, before {_named(self.before.sources)}. "
                "Checkpoints have offsets by the position of a source, so these offsets would go "
                "to a wrong one",
                f"read {_named(self.before.sources)} again, in this order",
            )
        else:
            yield from self._option_changes(self.before)
        yield from self._sink_changes(self.before)

    def _refused(self, problem: str, safe: str) -> Change:
        """Return a refused change; `safe` goes on without loss and without repeated rows."""
        remedy = or_reset(safe, self.flow, self.definitions.flows)
        return Change(self.flow.flow, self.flow.target, problem, remedy)

    def _noticed(self, problem: str, safe: str) -> Change:
        remedy = or_reset(safe, self.flow, self.definitions.flows)
        return Change(self.flow.flow, self.flow.target, problem, remedy, is_refused=False)

    def _lost_topics(self) -> Iterator[Change]:
        """Find topics that the checkpoint has and the definition no longer reads, or elsewhere."""
        if not self.flow.is_complete:
            return
        topics: set[str] = set()
        for source in self.flow.sources:
            read = _topics(source)
            if source.format != "table" and read is None:
                return
            topics |= read or set()
        ends = self.checkpoint.planned_ends
        had = {topic for end in ends if is_of_topics(end) for topic in end}
        gone = sorted(had - topics)
        if gone and topics:
            yield self._refused(
                f"it no longer reads {', '.join(gone)}, but {', '.join(sorted(topics))}. Its "
                f"checkpoint has offsets of {', '.join(sorted(had))}: the query would fail, or "
                "skip what it has not read of the old topic",
                f"read {', '.join(gone)} again, or all: subscribe={','.join(sorted(had | topics))}",
            )
        elif not gone and _are_moved(self.flow.sources, ends):
            order = ", ".join("+".join(sorted(end)) if is_of_topics(end) else "…" for end in ends)
            yield self._refused(
                f"it reads {_named(self.flow.sources)}, but its checkpoint has the offsets in "
                f"another order: {order}. The sides of a join or a union have changed places, so "
                "offsets would go to a wrong source",
                "put the sources back in the order of the checkpoint",
            )

    def _state_changes(self) -> Iterator[Change]:
        flow, before = self.flow, self.before
        has = ", ".join(self.checkpoint.operators)
        if not flow.is_complete:
            return
        restore = "undo this change"
        if flow.sink is None:
            restore += ", or define the changed table under a new name: the old one stays as it is"
        if self.checkpoint.operators and not flow.operators:
            problem = (
                f"it no longer keeps state, but its checkpoint has that of {has}. Spark would "
                "refuse it; rows that are in the state only, such as open windows, would be lost"
            )
        elif (
            flow.operators and not self.checkpoint.operators
            and self.checkpoint.committed_batch >= 0
        ):  # fmt: skip
            problem = (
                f"it keeps state now ({_kinds(flow)}), and its checkpoint has none: what was read "
                "already would not be in it"
            )
        elif before is None or flow.operators == before.operators:
            return
        elif [each.kind for each in flow.operators] != [each.kind for each in before.operators]:
            problem = (
                f"its state is of {_kinds(flow)}, before of {_kinds(before)}, which does not fit"
            )
        else:
            problem = (
                f"the keys, windows or functions of its {_kinds(flow)} changed. Spark would fail, "
                "or mix new results with old state"
            )
        yield self._refused(problem, restore)

    def _setting_changes(self) -> Iterator[Change]:
        """Find settings that have no effect, because the state was made with other ones."""
        if not self.checkpoint.operators:
            return
        fixed = self.checkpoint.settings
        for name, value in self.definitions.settings.get(self.flow.key, {}).items():
            if name in fixed and fixed[name] != value:
                yield self._noticed(
                    f"{name} is {value}, but its state was made with {fixed[name]}. Spark goes on "
                    f"with {fixed[name]}",
                    f"set {name} to {fixed[name]}; nothing is lost or repeated either way",
                )

    def _option_changes(self, before: FlowDefinition) -> Iterator[Change]:
        for now, then in zip(self.flow.sources, before.sources, strict=True):
            differing = _differing(now.options, then.options)
            starting = {name: values for name, values in differing.items() if name in _STARTING}
            if starting:
                yield self._noticed(
                    f"{_assignments(starting)} has no effect: the checkpoint says where to go on",
                    "nothing needs to be done to go on from there",
                )
            if _BROKERS in differing:
                yield self._noticed(
                    f"{_assignments({_BROKERS: differing[_BROKERS]})}. Offsets of the checkpoint "
                    "mean nothing in another cluster",
                    "nothing needs to be done if these brokers are of the same cluster",
                )

    def _sink_changes(self, before: FlowDefinition) -> Iterator[Change]:
        flow = self.flow
        if flow.sink == before.sink or flow.sink is None or before.sink is None:
            return
        differing = _differing(flow.sink.options, before.sink.options)
        if "table" not in before.sink.options:
            # Notes of earlier versions lack this option.
            differing.pop("table", None)
        if flow.sink.format != before.sink.format or set(differing) & {"topic", "path", "table"}:
            yield self._refused(
                f"its sink is another one ({_assignments(differing) or flow.sink.format}). Rows "
                "that the old sink has would not come to the new one",
                "give the new sink a new name: it gets all rows, and the old one stays as it is",
            )


def _are_moved(sources: Sequence[StreamSource], ends: Sequence[object]) -> bool:
    """Return whether a source has the position of another source in the checkpoint."""
    if len(sources) != len(ends):
        # Spark reads equal sources once.
        return False
    for source, end in zip(sources, ends, strict=True):
        topics = _topics(source) or set()
        if isinstance(end, dict) and is_of_topics(end) and not set(end) <= topics:
            return True
    return False


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


def _kinds(flow: FlowDefinition) -> str:
    return ", ".join(operator.kind for operator in flow.operators) or "nothing"


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
                    f"it is new, and flow {old.flow}, which wrote to {own_name(flow.target)} too, "
                    f"is gone. If it was renamed, it would read all of its source again, and "
                    f"{own_name(flow.target)} would have these rows twice",
                    or_reset(f"name it {old.flow} again", flow, flows),
                )
    for old in removed:
        if old.key not in explained:
            yield Change(
                old.flow,
                old.target,
                f"no definition has it any more. {own_name(old.target)} and its checkpoint stay as "
                "they are; under a new name a dataset begins anew",
                f"nothing needs to be done. {old.path.parent} is its checkpoint: without it, a "
                "flow that is defined again under this name writes all its rows once more",
                is_refused=False,
            )


def _shape(sources: Sequence[StreamSource]) -> list[tuple[str, str]]:
    """Return what must be equal of sources: their kinds in order, and the names of tables."""
    return [(source.format, source.options.get("name", "")) for source in sources]


def _named(sources: Sequence[StreamSource]) -> str:
    return ", ".join(
        source.options["name"]
        if source.format == "table"
        else "+".join(sorted(_topics(source) or {source.format}))
        for source in sources
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


@dataclass(frozen=True, slots=True)
class StoredTable:
    """The target of a flow, as earlier runs left it."""

    # Why rows of earlier runs are gone; None if they are there, or if that is unknown.
    missing: str | None = None
    # Spark's type of each column; empty if it is unknown.
    columns: Mapping[str, Any] | None = None


def find_table_changes(
    flow: FlowDefinition,
    flows: Sequence[FlowDefinition],
    checkpoint: Checkpoint,
    stored: StoredTable,
    columns: Mapping[str, Any],
) -> Iterator[Change]:
    """Yield what does not fit of the target of a flow that has run.

    Args:
        flow: the flow.
        flows: all flows of the pipeline.
        checkpoint: the flow's checkpoint.
        stored: its target.
        columns: Spark's types of the flow's rows by column; empty if they are unknown.
    """
    if stored.missing is not None and checkpoint.committed_batch >= 0:
        yield Change(
            flow.flow,
            flow.target,
            f"{stored.missing}, but its checkpoint is at batch {checkpoint.committed_batch}. A new "
            f"{'target' if flow.sink else 'table'} would lack all rows of the batches up to there",
            or_reset(f"bring {own_name(flow.target)} back, from a backup for example", flow, flows),
        )
        return
    for name, type_ in columns.items():
        before = (stored.columns or {}).get(name)
        if before is not None and not _is_mergeable(before, type_):
            now, then = type_.simpleString(), before.simpleString()
            new = f"cast {name} to {then}, or give the new values a column of their own"
            yield Change(
                flow.flow,
                flow.target,
                f"its column {name} is {now} now, and {then} in {own_name(flow.target)}",
                or_reset(new, flow, flows),
            )


def find_state_changes(
    flow: FlowDefinition, flows: Sequence[FlowDefinition], before: FlowDefinition
) -> Iterator[Change]:
    """Yield columns of other types than those with which the state of a flow was made.

    Only flows into sinks need this: the columns of other flows are compared with their tables.
    """
    if not flow.operators or flow.sink is None:
        return
    for name, type_ in flow.columns.items():
        then = before.columns.get(name, type_)
        if then != type_:
            yield Change(
                flow.flow,
                flow.target,
                f"its column {name} is {type_} now, and was {then} when its state was made",
                or_reset(f"cast {name} to {then}", flow, flows),
            )


def _is_mergeable(before: Any, now: Any) -> bool:
    """Return whether Spark writes a column of a type to a column of a table, as it merges them."""
    if before.typeName() != now.typeName():
        return False
    if before.typeName() == "struct":
        types = {field.name: field.dataType for field in now.fields}
        return all(
            _is_mergeable(field.dataType, types[field.name])
            for field in before.fields
            if field.name in types
        )
    if before.typeName() == "decimal":
        return bool(before.scale == now.scale)
    parts = [part for part in _PARTS if hasattr(before, part)]
    if parts:
        return all(_is_mergeable(getattr(before, part), getattr(now, part)) for part in parts)
    return bool(before.simpleString() == now.simpleString())
