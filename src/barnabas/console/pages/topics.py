"""Topics with their rates and configs, and the examinations of `barnabas why` and `doctor`.

Examinations measure for seconds, so a button starts them.

For a topic's own `retention.ms`, brokers send no synonym with the default, neither ours nor Apache
Kafka's: the default is that of `log.retention.hours`. So the configs of a broker give it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.routing import Route

from barnabas.cli.doctor.commands import examine_addresses
from barnabas.cli.doctor.diagnosis import Diagnosis
from barnabas.cli.partitions.snapshot import take_snapshots
from barnabas.cli.why.commands import WHY_DEFAULTS, Question, examine
from barnabas.cli.why.gather import gather_metrics
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.console.console import console_of
from barnabas.console.forms import query_fields
from barnabas.console.navigation import Entry
from barnabas.console.rendering import paged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.cli.partitions.snapshot import PartitionSnapshot
    from barnabas.cli.why.reasons import Reason
    from barnabas.client.admin.configs import ConfigEntry
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition


async def show_topics(request: Request) -> Response:
    """Show all topics."""
    console, query = console_of(request), query_fields(request)
    found = await console.cluster.call(lambda client: client.admin.list_topics(internal=True))
    word, internal = query.stripped("filter"), query.has("internal")
    names = [
        name
        for name, topic in found.items()
        if word.lower() in name.lower() and (internal or not topic.is_internal)
    ]
    rates = console.history.rates
    return console.page(
        request,
        "topics.html",
        page=paged(names, query.number("page", 1)),
        filter=word,
        internal=internal,
        hidden=sum(topic.is_internal for topic in found.values()) if not internal else 0,
        rates=rates.topics if rates else {},
        samples=console.history.latest.topics if console.history.latest else {},
    )


async def show_topic(request: Request) -> Response:
    """Show a topic: partitions, configs, rates."""
    console, query = console_of(request), query_fields(request)
    name = query.required("name")
    found = await console.cluster.call(lambda client: _load(client, name))
    rates = console.history.rates
    return console.page(
        request,
        "topic.html",
        name=name,
        rates=rates.topics.get(name) if rates else None,
        records_in=list(console.history.topic(name)),
        **{**found, "partitions": paged(found["partitions"], query.number("page", 1))},
    )


def _load(client: Client, name: str) -> dict[str, Any]:
    snapshots = take_snapshots(client, [name])
    starts = client.admin.list_offsets({each.partition: "earliest" for each in snapshots})
    resource = ConfigResource(ResourceType.TOPIC, name)
    entries = client.admin.describe_configs([resource], synonyms=True, documentation=True)[resource]
    is_error = isinstance(entries, ClientError)
    configs = [] if isinstance(entries, ClientError) else entries
    return {
        "partitions": [_partition(each, starts.get(each.partition)) for each in snapshots],
        "state": _state(snapshots),
        "sizes": _sizes(client, snapshots),
        "configs": explained_configs(configs, _inherited(client, configs, snapshots)),
        "configs_error": str(entries) if is_error else "",
    }


def _inherited(
    client: Client, entries: Sequence[ConfigEntry], snapshots: Sequence[PartitionSnapshot]
) -> dict[str, str]:
    """Return the times that the topic would have from its leader; empty if it does not say."""
    leader = next((each.state.leader for each in snapshots if each.state.leader >= 0), None)
    if leader is None or not needs_broker(entries):
        return {}
    resource = ConfigResource(ResourceType.BROKER, str(leader))
    try:
        found = client.admin.describe_configs([resource])[resource]
    except ClientError:
        return {}
    return {} if isinstance(found, ClientError) else inherited_times(found)


def _partition(snapshot: PartitionSnapshot, start: object) -> dict[str, Any]:
    first = getattr(start, "offset", None)
    end = snapshot.high_watermark
    return {
        "number": snapshot.partition.partition,
        "state": snapshot.state,
        "marks": snapshot.marks,
        "start": first,
        "end": end if isinstance(end, int) else None,
        "records": end - first if isinstance(end, int) and first is not None else None,
        "lags": {node: snapshot.lag_of(node) for node in snapshot.out_of_sync},
    }


def _state(snapshots: Sequence[PartitionSnapshot]) -> dict[str, Any]:
    return {
        "count": len(snapshots),
        "replicas": max((len(each.state.replicas) for each in snapshots), default=0),
        "min_isr": next((each.min_isr for each in snapshots), None),
        "is_internal": any(each.is_internal for each in snapshots),
        "unwell": sum(bool(set(each.marks) - {"moving", "not-preferred"}) for each in snapshots),
    }


def _sizes(client: Client, snapshots: Sequence[PartitionSnapshot]) -> dict[int, int]:
    """Return the bytes of the largest replica by partition; empty if brokers do not say."""
    nodes = {node for each in snapshots for node in each.state.isr}
    wanted: dict[TopicPartition, int] = {each.partition: -1 for each in snapshots}
    for directories in client.admin.describe_log_dirs(sorted(nodes), once=True).values():
        for directory in () if isinstance(directories, ClientError) else directories:
            for tp, replica in directory.replicas.items():
                if tp in wanted:
                    wanted[tp] = max(wanted[tp], replica.size)
    return {tp.partition: size for tp, size in wanted.items() if size >= 0}


_MEASURED_S = 1.5
_WHY_LIMIT_MS = 15_000
_LATE = (
    f"the brokers did not answer all requests within {_WHY_LIMIT_MS // 1000} s; ask about one "
    f"topic or group"
)
_SUBJECTS_MAX = 200


async def show_why(request: Request) -> Response:
    """Explain why something waits."""
    console, query = console_of(request), query_fields(request)
    answers = None
    if query.has("ask"):
        kind = query.stripped("kind")
        question = Question(
            query.stripped("target") or None, is_group=kind == "group", is_topic=kind == "topic"
        )
        metrics = console.settings.metrics

        def explain(client: Client) -> list[tuple[str, list[Reason]]]:
            late = "the brokers did not answer all requests in time"
            return examine(client, question, _MEASURED_S, gather_metrics(metrics), late)

        async with console.examining:
            try:
                answers = await console.cluster.call_once(explain, WHY_DEFAULTS, _WHY_LIMIT_MS)
            except TimeoutError:
                raise HTTPException(504, _LATE) from None
    return console.page(
        request,
        "why.html",
        answers=None if answers is None else answers[:_SUBJECTS_MAX],
        left_out=0 if answers is None else max(0, len(answers) - _SUBJECTS_MAX),
        target=query.stripped("target"),
        kind=query.stripped("kind"),
    )


async def show_doctor(request: Request) -> Response:
    """Show problems of the cluster, and their remedies."""
    console, query = console_of(request), query_fields(request)
    diagnosis = None
    if query.has("ask"):
        cluster = console.cluster

        def run() -> Diagnosis:
            made = Diagnosis()
            examine_addresses(cluster.bootstrap, cluster.config, made)
            return made

        async with console.examining:
            diagnosis = await asyncio.to_thread(run)
    return console.page(request, "doctor.html", diagnosis=diagnosis)


_REASONS = {
    "topic": "set on this topic",
    "group": "set on this group",
    "dynamic broker": "set at run time on this broker",
    "dynamic default broker": "set at run time for all brokers",
    "static broker": "set in the broker's file",
    "dynamic broker logger": "set at run time",
    "client metrics": "set on this subscription",
    "default": "default",
}


class ExplainedConfig(NamedTuple):
    """A config, its default, and where its value comes from."""

    name: str
    # None: a secret, or not set.
    value: str | None
    # None: there is no default, or the broker does not send it.
    default: str | None
    reason: str
    differs: bool
    is_secret: bool
    can_change: bool
    documentation: str


def explained_configs(
    entries: Iterable[ConfigEntry], inherited: Mapping[str, str] | None = None
) -> list[ExplainedConfig]:
    """Return the configs, those that differ from their defaults first.

    Args:
        entries: the configs, with their synonyms.
        inherited: defaults of configs whose synonyms have none.
    """
    found = [_explained(entry, inherited or {}) for entry in entries]
    return sorted(found, key=lambda each: (not each.differs, each.name))


def _explained(entry: ConfigEntry, inherited: Mapping[str, str]) -> ExplainedConfig:
    defaults = [each.value for each in entry.synonyms if each.source == "default"]
    if defaults:
        default = defaults[-1]
    else:
        default = entry.value if entry.is_default else inherited.get(entry.name)
    is_set = not entry.is_default and entry.source != "default"
    reason = _REASONS.get(entry.source, entry.source)
    if is_set and entry.source != "topic" and entry.synonyms:
        name = entry.synonyms[0].name
        if name != entry.name:
            reason = f"{reason} as {name}"
    return ExplainedConfig(
        name=entry.name,
        value=entry.value,
        default=default,
        reason=reason,
        differs=is_set,
        is_secret=entry.is_sensitive,
        can_change=not entry.is_read_only,
        documentation=entry.documentation or "",
    )


_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
# Topic config -> the broker configs and their units in ms, in order of precedence.
_SOURCES = {
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
}


def needs_broker(entries: Iterable[ConfigEntry]) -> bool:
    """Return whether a topic has such a config of its own, so that its default is not known."""
    return any(entry.name in _SOURCES and not entry.is_default for entry in entries)


def inherited_times(broker: Iterable[ConfigEntry]) -> dict[str, str]:
    """Return what topics without own configs have, by topic config.

    Args:
        broker: the configs of a broker.
    """
    values = {entry.name: entry.value for entry in broker}
    found = {}
    for name, sources in _SOURCES.items():
        for source, unit_ms in sources:
            value = values.get(source)
            if value is not None:
                # A negative number means no limit in each unit.
                number = int(value)
                found[name] = str(number * unit_ms if number >= 0 else number)
                break
    return found


NAVIGATION = [
    Entry(
        "Topics",
        "Topics",
        "/topics",
        (
            "/topic",
            "/messages",
            "/message",
            "/message/versions",
            "/message/difference",
            "/produce",
        ),
    ),
    Entry("Doctor", "Doctor", "/doctor"),
    Entry("Doctor", "Why", "/why"),
]
ROUTES = [
    Route("/topics", show_topics),
    Route("/topic", show_topic),
    Route("/why", show_why),
    Route("/doctor", show_doctor),
]
