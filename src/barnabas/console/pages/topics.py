"""The list of topics, and the page of one topic: partitions, consumers, rates, configs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from starlette.routing import Route

from barnabas.cli.common.units import config_meaning
from barnabas.cli.partitions.snapshot import take_snapshots
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.console.cluster_history import TOPIC, known_sum
from barnabas.console.console import console_of
from barnabas.console.forms import query_fields
from barnabas.console.history.charts import chosen_span
from barnabas.console.navigation import Entry
from barnabas.console.pages.configs import config_tables
from barnabas.console.pages.topic_tier import load_tier
from barnabas.console.plans.config_sources import defaults_of, explained_configs
from barnabas.console.tables import Column, tabulate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.cli.load.rates import GroupSample, TopicRates, TopicSample
    from barnabas.cli.partitions.snapshot import PartitionSnapshot
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.console.cluster_history import History
    from barnabas.console.history.topic_facts import TopicFact
    from barnabas.console.pages.topic_tier import TopicTier


T = TypeVar("T")


class TopicFigures(NamedTuple):
    """The figures of topics by name, as far as they are known."""

    samples: Mapping[str, TopicSample]
    rates: Mapping[str, TopicRates]
    # Groups that have committed an offset of the topic, or read it.
    groups: Mapping[str, int]
    facts: Mapping[str, TopicFact]

    def of(self, names: Sequence[str]) -> TopicFigures:
        """Return the figures of some topics. They do not keep a whole sample in memory."""
        return TopicFigures(
            _only(names, self.samples),
            _only(names, self.rates),
            _only(names, self.groups),
            _only(names, self.facts),
        )


def _only(names: Sequence[str], found: Mapping[str, T]) -> dict[str, T]:
    return {name: found[name] for name in names if name in found}


class ListedTopic(NamedTuple):
    """A row of the list. Its figures are looked up when they are used: few rows are shown."""

    name: str
    figures: TopicFigures

    @property
    def sample(self) -> TopicSample | None:
        """The topic in the last sample; None without one."""
        return self.figures.samples.get(self.name)

    @property
    def fact(self) -> TopicFact | None:
        """What changes rarely; None until it is read."""
        return self.figures.facts.get(self.name)

    @property
    def groups(self) -> int:
        """Number of groups that read the topic."""
        return self.figures.groups.get(self.name, 0)

    @property
    def records(self) -> int | None:
        """Number of offsets between the start and the end of the logs; None if it is unknown."""
        sample, fact = self.sample, self.fact
        if sample is None or fact is None or fact.start_offsets is None:
            return None
        # The start is newer than the sample, so that it may have moved past the end of that time.
        return max(0, sample.end_offsets - fact.start_offsets)

    @property
    def is_compacted(self) -> bool:
        """Whether the logs have gaps where records were compacted."""
        fact = self.fact
        return fact is not None and "compact" in fact.cleanup_policy

    def sampled(self, name: str) -> Any:
        """Return a field of the sample; None without one."""
        sample = self.sample
        return None if sample is None else getattr(sample, name)

    def rate(self, name: str) -> Any:
        """Return a field of the rates; None without one."""
        rates = self.figures.rates.get(self.name)
        return None if rates is None else getattr(rates, name)


_LISTED: list[Column[ListedTopic]] = [
    Column("name", "Topic", lambda each: each.name),
    Column("partitions", "Partitions", lambda each: each.sampled("partitions"), "number"),
    Column(
        "replicas",
        "Replicas",
        lambda each: each.sampled("replicas"),
        "number",
        hint="Replication factor",
    ),
    Column(
        "unwell",
        "Partitions with problems",
        lambda each: each.sampled("unwell"),
        numeric=True,
        hint="Without a leader, or with a replica out of sync",
    ),
    Column(
        "count",
        "Records",
        lambda each: each.records,
        numeric=True,
        hint="Offsets from start to end; compacted records and markers of transactions count",
    ),
    Column(
        "policy",
        "Cleanup policy",
        lambda each: each.fact.cleanup_policy if each.fact else None,
        "text",
    ),
    Column("records", "Records in/s", lambda each: each.rate("records_in"), "rate"),
    Column("bytes", "Bytes in/s", lambda each: each.rate("bytes_in"), "size"),
    Column("size", "Size", lambda each: each.sampled("log_bytes"), "size"),
    Column("groups", "Groups", lambda each: each.groups, "number", hint="Groups that read it"),
    Column("messages", "Messages"),
]


# Columns whose values are facts, which a page reads.
_FACTS = frozenset(("count", "policy"))


async def show_topics(request: Request) -> Response:
    """Show all topics."""
    console, query = console_of(request), query_fields(request)
    found = await console.cluster.call(lambda client: client.admin.list_topics(internal=True))
    internal = query.has("internal")
    names = [name for name, topic in found.items() if internal or not topic.is_internal]
    samples = console.history.latest.topics if console.history.latest else {}

    async def read(names: Sequence[str]) -> dict[str, TopicFact]:
        return await console.topic_facts.read(console.cluster.call, samples, names)

    by_fact = query.stripped("sort").removeprefix("-") in _FACTS
    facts = await read(names) if by_fact else {}
    figures = _figures(console.history, facts)
    rows = [ListedTopic(name, figures) for name in names]
    table = tabulate(request, _LISTED, rows, text=lambda each: each.name, sort="name")
    shown = [each.name for each in table.rows]
    if not by_fact and _FACTS & {each.key for each in table.columns}:
        figures = figures._replace(facts=await read(shown))
    # The console keeps the rows of the latest pages.
    figures = figures.of(shown)
    table = replace(table, rows=[ListedTopic(name, figures) for name in shown])
    return console.page(
        request,
        "topics.html",
        table=table,
        internal=internal,
        hidden=len(found) - len(names),
        unsorted=len(names) - len(facts) if by_fact else 0,
    )


def _figures(history: History, facts: Mapping[str, TopicFact]) -> TopicFigures:
    return TopicFigures(
        history.latest.topics if history.latest else {},
        history.rates.topics if history.rates else {},
        history.groups_by_topic(),
        facts,
    )


class ShownPartition(NamedTuple):
    """A row of the partitions of a topic."""

    number: int
    snapshot: PartitionSnapshot
    # Offsets; None if they are unknown.
    start: int | None
    end: int | None
    # Bytes of the largest replica.
    size: int | None
    # Records written per second.
    rate: float | None
    # With a remote tier: the first offset on the disk of the leader, and the last one in the tier.
    local_start: int | None = None
    last_copied: int | None = None

    @property
    def records(self) -> int | None:
        """Number of offsets between start and end."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def lags(self) -> dict[int, int | None]:
        """Records by which each replica out of sync is behind."""
        return {node: self.snapshot.lag_of(node) for node in self.snapshot.out_of_sync}


_PARTITIONS: list[Column[ShownPartition]] = [
    Column("number", "#", lambda each: each.number),
    Column("leader", "Leader", lambda each: each.snapshot.state.leader),
    Column("replicas", "Replicas"),
    Column("isr", "In sync"),
    Column("state", "State", lambda each: not each.snapshot.marks),
    Column("start", "Start", lambda each: each.start, "number"),
    Column("end", "End", lambda each: each.end, "number"),
    Column("records", "Records", lambda each: each.records, "number"),
    Column("rate", "Records in/s", lambda each: each.rate, "rate"),
    Column("size", "Size", lambda each: each.size, "size"),
]
_TIERED_PARTITIONS: list[Column[ShownPartition]] = [
    *_PARTITIONS,
    Column(
        "local", "On disk from", lambda each: each.local_start, "number", hint="First local offset"
    ),
    Column(
        "tiered",
        "In tier to",
        lambda each: each.last_copied,
        "number",
        hint="Last offset in the remote tier",
    ),
]


class Consumer(NamedTuple):
    """A group that has committed offsets of a topic, or reads it."""

    group: str
    sample: GroupSample
    # Records; None if no lag is known.
    lag: int | None
    # Age of the oldest record of the topic that is not committed (s); None if it is unknown.
    seconds: float | None
    # Partitions with an offset, and those that a member reads.
    committed: int
    assigned: int


_CONSUMERS: list[Column[Consumer]] = [
    Column("group", "Group", lambda each: each.group),
    Column("type", "Type", lambda each: each.sample.type, "text"),
    Column("state", "State", lambda each: each.sample.state),
    Column("committed", "Partitions with offsets", lambda each: each.committed, "number"),
    Column("assigned", "Assigned partitions", lambda each: each.assigned, "number"),
    Column("lag", "Lag", lambda each: each.lag, "number"),
    Column("seconds", "Lag in time", lambda each: each.seconds, numeric=True),
]


# Configs by which brokers delete old records.
_LIMITS = ("retention.ms", "retention.bytes")


async def show_topic(request: Request) -> Response:
    """Show a topic."""
    console, query = console_of(request), query_fields(request)
    name = query.required("name")
    listeners = console.settings.metrics
    found = await console.cluster.call(lambda client: _load(client, name, listeners))
    history = console.history
    span = chosen_span(query.stripped("span"), history.now)
    by_partition = history.partition_rates(name)
    partitions = [each._replace(rate=by_partition.get(each.number)) for each in found["partitions"]]
    columns = _PARTITIONS if found["tier"] is None else _TIERED_PARTITIONS
    return console.page(
        request,
        "topic.html",
        name=name,
        rates=history.rates.topics.get(name) if history.rates else None,
        records_in=await history.points(TOPIC + name, span.begin),
        span=span,
        partition_table=tabulate(request, columns, partitions, text=_partition_text, sort="number"),
        consumers=tabulate(
            request,
            _CONSUMERS,
            _consumers(history, name),
            text=lambda each: f"{each.group} {each.sample.type} {each.sample.state}",
            sort="-lag",
            prefix="g",
        ),
        has_sample=history.latest is not None,
        total_records=known_sum(each.records for each in partitions),
        skew={
            "records": _skew(each.records for each in partitions),
            "bytes": _skew(each.size for each in partitions),
            "rate": _skew(by_partition.values()),
        },
        configs=config_tables(request, found["configs"]),
        **{key: value for key, value in found.items() if key not in {"partitions", "configs"}},
    )


def _partition_text(each: ShownPartition) -> str:
    """Return what the filter looks in, such as `3 leader=1 under-replicated`."""
    state = each.snapshot.state
    nodes = " ".join(f"replica={node}" for node in state.replicas)
    return f"{each.number} leader={state.leader} {nodes} {' '.join(each.snapshot.marks) or 'ok'}"


def _skew(values: Iterable[float | None]) -> float | None:
    """Return how many times the largest value is the average; None if there are too few."""
    known = [value for value in values if value is not None]
    total = sum(known)
    return max(known) * len(known) / total if len(known) > 1 and total > 0 else None


def _consumers(history: History, name: str) -> list[Consumer]:
    found = []
    for group, sample in history.latest.groups.items() if history.latest else ():
        own = [each for each in sample.partitions if each.partition.topic == name]
        if own:
            lags = [each.lag for each in own if each.lag is not None]
            committed = sum(each.offset is not None for each in own)
            assigned = sum(each.member is not None for each in own)
            lag = sum(lags) if lags else None
            seconds = sample.topic_seconds.get(name)
            found.append(Consumer(group, sample, lag, seconds, committed, assigned))
    return found


def _load(client: Client, name: str, listeners: Sequence[str]) -> dict[str, Any]:
    snapshots = take_snapshots(client, [name])
    starts = client.admin.list_offsets({each.partition: "earliest" for each in snapshots})
    resource = ConfigResource(ResourceType.TOPIC, name)
    entries = client.admin.describe_configs([resource], synonyms=True, documentation=True)[resource]
    is_error = isinstance(entries, ClientError)
    configs = [] if isinstance(entries, ClientError) else entries
    leader = next((each.state.leader for each in snapshots if each.state.leader >= 0), -1)
    sizes = _sizes(client, snapshots)
    tier = load_tier(client, snapshots, listeners)
    return {
        "partitions": [
            _partition(each, starts.get(each.partition), sizes, tier) for each in snapshots
        ],
        "tier": tier,
        "state": _state(snapshots),
        "total_size": sum(sizes.values()) if sizes else None,
        "retention": _retention({each.name: each.value for each in configs}),
        "configs": explained_configs(configs, defaults_of(client, configs, leader)),
        "configs_error": str(entries) if is_error else "",
    }


def _retention(configs: dict[str, str | None]) -> str:
    """Return for how long the topic keeps records, in a few words."""
    policy = configs.get("cleanup.policy")
    if policy is None:
        return "–"
    found = ["compacted"] if "compact" in policy else []
    if "delete" in policy:
        texts = [config_meaning(key, configs.get(key)) for key in _LIMITS]
        found += [text for text in texts if text not in ("", "no limit")]
    return ", ".join(found) or "no limit"


def _partition(
    snapshot: PartitionSnapshot, start: object, sizes: dict[int, int], tier: TopicTier | None
) -> ShownPartition:
    end, number = snapshot.high_watermark, snapshot.partition.partition
    facts = None if tier is None else tier.partitions.get(number)
    return ShownPartition(
        number,
        snapshot,
        getattr(start, "offset", None),
        end if isinstance(end, int) else None,
        sizes.get(number),
        None,
        None if facts is None else facts.local_start,
        None if facts is None else facts.last_copied,
    )


def _state(snapshots: Sequence[PartitionSnapshot]) -> dict[str, Any]:
    return {
        "count": len(snapshots),
        "replicas": max((len(each.state.replicas) for each in snapshots), default=0),
        "min_isr": next((each.min_isr for each in snapshots), None),
        "is_internal": any(each.is_internal for each in snapshots),
        "unwell": sum(bool(set(each.marks) - {"moving", "not-preferred"}) for each in snapshots),
        "not_preferred": sum("not-preferred" in each.marks for each in snapshots),
    }


def _sizes(client: Client, snapshots: Sequence[PartitionSnapshot]) -> dict[int, int]:
    """Return the bytes of the largest replica by partition; empty if brokers do not say."""
    nodes = {node for each in snapshots for node in each.state.isr}
    wanted: dict[TopicPartition, int] = {each.partition: -1 for each in snapshots}
    described = client.admin.describe_log_dirs(sorted(nodes), wanted, once=True)
    for directories in described.values():
        for directory in () if isinstance(directories, ClientError) else directories:
            for tp, replica in directory.replicas.items():
                if tp in wanted:
                    wanted[tp] = max(wanted[tp], replica.size)
    return {tp.partition: size for tp, size in wanted.items() if size >= 0}


NAVIGATION = [
    Entry(
        "Topics",
        "Topics",
        "/topics",
        (
            "/topic",
            "/topic/edit",
            "/topics/new",
            "/messages",
            "/message",
            "/message/versions",
            "/message/difference",
            "/produce",
            "/resend",
        ),
    ),
]
ROUTES = [
    Route("/topics", show_topics),
    Route("/topic", show_topic),
]
