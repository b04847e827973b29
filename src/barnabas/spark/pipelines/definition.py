"""What a flow reads and which state it keeps, taken from its definition before a run.

A definition in Python is a plan of Spark Connect, a protobuf message, before Spark analyzes it.
Flows in SQL files are parsed by Spark only, so they have no `FlowDefinition`.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from barnabas.spark.topics.options import NAMES

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

# Relations that keep state when their input is a stream.
_STATEFUL = {
    "aggregate": "aggregation",
    "deduplicate": "deduplication",
    "join": "join of streams",
    "group_map": "state per group",
    "apply_in_pandas_with_state": "state per group",
}
# Parts of a relation that differ between two equal definitions: numbers of plans and lines of code.
_NOISE = {"common", "plan_id"}
# Options that are compared, in lower case. Others may hold secrets, so they are not noted.
_NOTED_OPTIONS = {*(name for name in NAMES if "password" not in name), "path", "table"}


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A source that a flow reads as a stream."""

    # "table" for a table of the pipeline.
    format: str
    # The options that are compared, with names in lower case; of a table its name.
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatefulOperator:
    """A part of a flow that keeps state."""

    kind: str
    # Of its keys, windows and functions. Equal digests mean that the state fits.
    digest: str


@dataclass(frozen=True, slots=True)
class FlowDefinition:
    """The parts of a flow's definition on which its checkpoint depends."""

    target: str
    flow: str
    # In the order in which the checkpoint has their offsets.
    sources: tuple[StreamSource, ...] = ()
    operators: tuple[StatefulOperator, ...] = ()
    # Format and options of the sink; None if the target is a table.
    sink: StreamSource | None = None
    # Whether all that the flow reads is known; not if it reads what SQL files may define.
    is_complete: bool = True
    # The types of the flow's rows by column, as Spark names them; empty if they are unknown.
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name under which runs take notes of this flow."""
        return f"{self.target}/{self.flow}"

    @property
    def is_streaming(self) -> bool:
        """Whether the flow has a checkpoint. Others are computed again in each run."""
        return bool(self.sources)

    def to_json(self) -> dict[str, Any]:
        """Return the definition for the notes of a run."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FlowDefinition:
        """Return the definition that `to_json` noted."""
        sink = value["sink"]
        return cls(
            target=value["target"],
            flow=value["flow"],
            sources=tuple(StreamSource(**source) for source in value["sources"]),
            operators=tuple(StatefulOperator(**operator) for operator in value["operators"]),
            sink=None if sink is None else StreamSource(**sink),
            is_complete=value["is_complete"],
            columns=value.get("columns", {}),
        )


@dataclass(frozen=True, slots=True)
class TopicUse:
    """A read or a write of topics."""

    target: str
    flow: str
    # All options of the source or sink; they may hold secrets.
    options: Mapping[str, str]
    is_sink: bool

    @property
    def key(self) -> str:
        """The key of the flow."""
        return f"{self.target}/{self.flow}"


def short_key(key: str) -> str:
    """Return the short name of a flow: of its table, or of the sink and the flow into the sink.

    Args:
        key: the flow's `FlowDefinition.key`.
    """
    target, _, name = key.rpartition("/")
    target = target.rsplit(".", 1)[-1]
    return name if target in ("", name) else f"{target}/{name}"


def topic_reads(root: Any) -> Iterator[dict[str, str]]:
    """Yield the options of each read of topics, of batches too; they may hold secrets."""
    for relation in relations(root):
        if relation.WhichOneof("rel_type") == "read":
            read = relation.read
            if read.WhichOneof("read_type") == "data_source" and (
                read.data_source.format == "barnabas"
            ):
                yield dict(read.data_source.options)


def noted_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that a note may contain, with names in lower case."""
    named = {name.lower(): value for name, value in options.items()}
    return {name: value for name, value in sorted(named.items()) if name in _NOTED_OPTIONS}


def define_flow(target: str, flow: str, plan: Any, sink: StreamSource | None) -> FlowDefinition:
    """Return the definition of a flow.

    Args:
        target: the dataset's name with catalog and database, or the sink's name.
        flow: the flow's own name.
        plan: the message `Plan` or `Relation` of the flow's DataFrame.
        sink: the sink; None if the target is a table.
    """
    root = plan.root if "root" in {each.name for each in plan.DESCRIPTOR.fields} else plan
    streamed = [relation for relation in relations(root) if is_streaming(relation)]
    sources = tuple(
        source
        for relation in streamed
        if relation.WhichOneof("rel_type") == "read"
        for source in (_source(relation.read),)
    )
    operators = tuple(
        StatefulOperator(_STATEFUL[kind], _digest(getattr(relation, kind)))
        for relation in streamed
        for kind in (relation.WhichOneof("rel_type"),)
        if kind in _STATEFUL and (kind != "join" or _joins_streams(relation.join))
    )
    return FlowDefinition(target, flow, sources, operators, sink)


def inline_views(
    flow: FlowDefinition, views: Mapping[str, FlowDefinition], known: Container[str] | None
) -> FlowDefinition:
    """Return a flow with the sources and operators of the temporary views that it reads.

    Views have no checkpoints: what they do is in the checkpoint of the flow that reads them.

    Args:
        flow: the flow.
        views: definitions of the pipeline's temporary views by name.
        known: names of all datasets; None if these are all that the pipeline defines.
    """
    sources: list[StreamSource] = []
    operators = list(flow.operators)
    is_complete = flow.is_complete
    for source in flow.sources:
        name = source.options.get("name", "").replace("`", "")
        if source.format == "table" and name in views:
            # Spark refuses views that read each other in a circle.
            others = {key: view for key, view in views.items() if key != name}
            view = inline_views(views[name], others, known)
            sources += view.sources
            operators += view.operators
            is_complete = is_complete and view.is_complete
        else:
            sources.append(source)
            if source.format == "table" and known is not None:
                is_complete = is_complete and name.rsplit(".", 1)[-1] in known
    return replace(
        flow, sources=tuple(sources), operators=tuple(operators), is_complete=is_complete
    )


def relations(message: Any) -> Iterator[Any]:
    """Yield all relations of a message, inputs after the relation that reads them."""
    if message.DESCRIPTOR.name == "Relation":
        yield message
    for descriptor, value in message.ListFields():
        if descriptor.type != descriptor.TYPE_MESSAGE or _is_map(descriptor):
            continue
        for each in value if _is_repeated(value) else (value,):
            yield from relations(each)


def _is_repeated(value: Any) -> bool:
    return not hasattr(value, "DESCRIPTOR")


def _is_map(descriptor: Any) -> bool:
    kind = descriptor.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)


def is_streaming(relation: Any) -> bool:
    """Return whether a relation reads a stream."""
    return any(
        each.WhichOneof("rel_type") == "read" and each.read.is_streaming
        for each in relations(relation)
    )


def _joins_streams(join: Any) -> bool:
    return is_streaming(join.left) and is_streaming(join.right)


def _source(read: Any) -> StreamSource:
    if read.WhichOneof("read_type") == "named_table":
        return StreamSource("table", {"name": read.named_table.unparsed_identifier})
    return StreamSource(read.data_source.format, noted_options(read.data_source.options))


def _digest(message: Any) -> str:
    """Return a digest of a relation without its inputs and without noise."""
    parts: list[str] = []
    _canonical(message, parts)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _canonical(message: Any, parts: list[str]) -> None:
    for descriptor, value in message.ListFields():
        kind = descriptor.message_type
        if descriptor.name in _NOISE or (kind is not None and kind.name == "Relation"):
            continue
        if _is_map(descriptor):
            parts.append(f"{descriptor.name}={sorted((key, repr(value[key])) for key in value)}")
        elif kind is None:
            parts.append(f"{descriptor.name}={value!r}")
        else:
            for each in value if _is_repeated(value) else (value,):
                parts.append(f"{descriptor.name}:")
                _canonical(each, parts)
