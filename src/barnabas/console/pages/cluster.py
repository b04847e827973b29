"""The first page, and the page of one broker."""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from starlette.routing import Route

from barnabas.cli.admin.quorum import quorum_state
from barnabas.cli.common.machine_lines import machines_of
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.console.access.users import acting_user
from barnabas.console.cluster_history import Totals, users_totals
from barnabas.console.console import console_of
from barnabas.console.forms import query_fields
from barnabas.console.history.charts import Line, axis_chart, chosen_span
from barnabas.console.navigation import Entry
from barnabas.console.pages.configs import config_tables
from barnabas.console.pages.nodes import REPLICA_COLUMNS, replica_rows
from barnabas.console.plans.config_sources import explained_configs
from barnabas.console.tables import Column, tabulate
from barnabas.storage.remote_keys import STORAGE, SYSTEM_ENABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.cli.load.rates import (
        BrokerRates,
        ClientRates,
        NodeSample,
        Sample,
        TopicRates,
    )
    from barnabas.client.admin.cluster import QuorumDescription
    from barnabas.client.admin.log_dirs import LogDirectory
    from barnabas.client.connections.metadata_cache import NodeInfo
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.console.cluster_history import History
    from barnabas.console.history.charts import AxisChart, Span, Unit
    from barnabas.console.pages.nodes import ReplicaRow
    from barnabas.console.tables import Table
    from barnabas.server.listeners.client_traffic import ClientKey


async def show_cluster(request: Request) -> Response:
    """Show the cluster."""
    console = console_of(request)
    history = console.history
    span = chosen_span(query_fields(request).stripped("span"), history.now)
    found, charts = await asyncio.gather(
        console.cluster.call(_load_cluster), _charts(history, span)
    )
    sample, rates = history.latest, history.rates
    cluster, counts = found["cluster"], _counts(sample)
    rows = [broker_row(each, sample, found["levels"]) for each in cluster.brokers]
    rows += [broker_row(each, sample, {}, is_fenced=True) for each in cluster.fenced]
    return console.page(
        request,
        "cluster.html",
        **found,
        brokers=tabulate(
            request, broker_columns(rows), rows, text=searched_text, sort="id", prefix="brokers."
        ),
        problems=_problems(found, counts, rows),
        has_sample=sample is not None,
        counts=counts,
        totals=users_totals(rates) if rates else Totals(),
        replicas=_replicas(request, found["quorum"]),
        topics=_busiest(request, _TOPICS, rates.topics if rates else {}, "records"),
        clients=_busiest(request, _CLIENTS, rates.clients if rates else {}, "in"),
        processes=tabulate(
            request,
            _PROCESSES,
            list(rates.processes.items()) if rates else [],
            text=lambda row: row[0],
            sort="address",
            prefix="processes.",
        ),
        span=span,
        charts=charts,
        has_metrics=bool(console.settings.metrics),
    )


class Counts(NamedTuple):
    """Numbers of the last sample; None without one. The page does not keep the sample itself."""

    topics: int | None = None
    partitions: int | None = None
    # Partitions without a leader, or with a replica out of sync.
    unwell: int | None = None
    groups: int | None = None


def _counts(sample: Sample | None) -> Counts:
    if sample is None:
        return Counts()
    topics = sample.topics.values()
    return Counts(
        len(topics),
        sum(each.partitions for each in topics),
        sum(each.unwell for each in topics),
        sample.group_count,
    )


_LEVELS_MAX = 50


def _load_cluster(client: Client) -> dict[str, Any]:
    cluster = client.describe_cluster()
    quorum = quorum_state(client)
    features: dict[str, int] = {}
    levels: dict[int, int | None] = {}
    for broker in cluster.brokers[:_LEVELS_MAX]:
        try:
            versions = client.admin.describe_versions(broker.id)
        except ClientError:
            continue
        features = features or versions.finalized_features
        levels[broker.id] = versions.supported_features.get("metadata.version", (0, None))[1]
    return {
        "cluster": cluster,
        "quorum": quorum.description,
        "is_quorum_lost": quorum.is_lost,
        "features": features,
        "levels": levels,
    }


# The first metadata.version of each release of Apache Kafka, the newest first.
_RELEASES = (
    (31, "4.4"), (30, "4.3"), (28, "4.2"), (26, "4.1"), (22, "4.0"), (21, "3.9"), (20, "3.8"),
    (15, "3.7"), (12, "3.6"), (9, "3.5"), (8, "3.4"), (4, "3.3"),
)  # fmt: skip


def release(level: int | None) -> str | None:
    """Return the release of Apache Kafka whose features a broker has; None if it is unknown."""
    return next((name for first, name in _RELEASES if level is not None and level >= first), None)


class BrokerRow(NamedTuple):
    """A broker in the list; None for what is not known."""

    id: int
    address: str
    machine: str
    rack: str | None
    is_fenced: bool
    level: int | None
    release: str | None
    # From the latest sample.
    node: NodeSample | None

    @property
    def used_share(self) -> float | None:
        """Used part of its disks, from 0 to 1."""
        node = self.node
        if node is None or node.free_bytes is None or not node.total_bytes:
            return None
        return 1 - node.free_bytes / node.total_bytes


def broker_row(
    broker: NodeInfo,
    sample: Sample | None,
    levels: dict[int, int | None],
    *,
    is_fenced: bool = False,
) -> BrokerRow:
    """Return the row of a broker.

    Args:
        broker: The broker.
        sample: The latest sample; None before the first one.
        levels: The newest metadata.version by broker.
        is_fenced: Whether the broker does not serve.
    """
    level = levels.get(broker.id)
    node = sample.nodes.get(broker.id) if sample is not None and not is_fenced else None
    return BrokerRow(
        broker.id,
        broker.address,
        machines_of([broker])[broker.id],
        broker.rack,
        is_fenced,
        level,
        release(level),
        node,
    )


def searched_text(row: BrokerRow) -> str:
    """Return the text of a broker in which the filter looks."""
    state = "fenced" if row.is_fenced else "active"
    return f"{row.id} {row.address} {row.machine} {row.rack or ''} {state}"


def _of_node(name: str) -> Callable[[BrokerRow], Any]:
    return lambda row: None if row.node is None else getattr(row.node, name)


BROKER_COLUMNS: tuple[Column[BrokerRow], ...] = (
    Column("id", "Broker", lambda row: row.id),
    Column("address", "Address", lambda row: row.address, kind="mono"),
    Column("machine", "Machine", lambda row: row.machine, kind="mono"),
    Column("rack", "Rack", lambda row: row.rack, kind="text"),
    Column("state", "State", lambda row: row.is_fenced),
    Column(
        "release", "Kafka features", lambda row: row.level, numeric=True,
        hint="the release of Apache Kafka with the newest metadata.version of the broker",
    ),
    Column("leaders", "Leads", _of_node("leaders"), kind="number"),
    Column("replicas", "Replicas", _of_node("replicas"), kind="number"),
    Column("behind", "Out of sync", _of_node("out_of_sync"), numeric=True),
    Column("used", "Logs", _of_node("used_bytes"), kind="size", hint="bytes of its replicas"),
    Column("free", "Free", _of_node("free_bytes"), kind="size", hint="of its file systems"),
    Column("full", "Disk", lambda row: row.used_share, numeric=True),
)  # fmt: skip


def broker_columns(rows: Sequence[BrokerRow]) -> Sequence[Column[BrokerRow]]:
    """Return the columns of the list of brokers: machines only if some have several brokers."""
    if len({row.machine for row in rows}) < len(rows):
        return BROKER_COLUMNS
    return [column for column in BROKER_COLUMNS if column.key != "machine"]


# A disk with less free space than this part is a problem.
_FREE_SHARE_MIN = 0.1


class Problem(NamedTuple):
    """Something that an operator has to look at, with the page that says more."""

    text: str
    path: str
    is_severe: bool = False


def _problems(found: dict[str, Any], counts: Counts, brokers: Sequence[BrokerRow]) -> list[Problem]:
    problems = []
    if found["is_quorum_lost"]:
        problems.append(Problem("The metadata quorum has no leader", "/doctor", is_severe=True))
    fenced = [str(each.id) for each in brokers if each.is_fenced]
    if fenced:
        text = f"Brokers do not serve clients: {', '.join(fenced[:10])}"
        problems.append(Problem(text, "/doctor", is_severe=True))
    if counts.unwell:
        text = f"Partitions without a leader, or with a replica out of sync: {counts.unwell:,}"
        problems.append(Problem(text, "/why"))
    for each in brokers:
        if each.node is not None and each.node.error:
            problems.append(Problem(f"Broker {each.id}: {each.node.error}", "/doctor", True))
        if each.used_share is not None and each.used_share > 1 - _FREE_SHARE_MIN:
            text = f"The disk of broker {each.id} is {each.used_share:.0%} full"
            problems.append(Problem(text, "/doctor"))
    return problems


_BUSIEST = 8
K = TypeVar("K")
V = TypeVar("V")

_TOPICS: tuple[Column[tuple[str, TopicRates]], ...] = (
    Column("topic", "Topic", lambda row: row[0]),
    Column("records", "Records in/s", lambda row: row[1].records_in, "rate"),
    Column("in", "Bytes in/s", lambda row: row[1].bytes_in, "size"),
    Column("out", "Bytes out/s", lambda row: row[1].bytes_out, "size"),
)
_CLIENTS: tuple[Column[tuple[ClientKey, ClientRates]], ...] = (
    Column("client", "Client", lambda row: row[0].client_id),
    Column("principal", "Principal", lambda row: row[0].principal, "name"),
    Column("requests", "Requests/s", lambda row: row[1].requests, "rate"),
    Column("in", "Bytes in/s", lambda row: row[1].bytes_in, "size"),
    Column("out", "Bytes out/s", lambda row: row[1].bytes_out, "size"),
)
_PROCESSES: tuple[Column[tuple[str, BrokerRates]], ...] = (
    Column("address", "Listener", lambda row: row[0], "mono"),
    Column("requests", "Requests/s", lambda row: row[1].requests, "rate"),
    Column("cpu", "CPU cores", lambda row: row[1].cpu, numeric=True),
    Column("memory", "Memory", lambda row: row[1].resident_bytes, "size"),
    Column("connections", "Connections", lambda row: row[1].connections, "number"),
)


def _busiest(
    request: Request, columns: Sequence[Column[tuple[K, V]]], found: Mapping[K, V], load: str
) -> Table[tuple[K, V]]:
    """Return the names with the largest values in the column by which the table is sorted.

    Args:
        request: The request for the page.
        columns: The columns; the key of the first one is the prefix of the table.
        found: All names.
        load: Key of the column that counts unless the address has another one with numbers.
    """
    prefix = f"{columns[0].key}s."
    asked = query_fields(request).stripped(f"{prefix}sort").removeprefix("-")
    numbers = {each.key: each.value for each in columns if each.is_numeric}
    measure = numbers.get(asked) or numbers[load]
    assert measure is not None
    busy = [row for row in found.items() if (measure(row) or 0) > 0]
    largest = heapq.nlargest(_BUSIEST, busy, key=measure)
    return tabulate(request, columns, largest, sort=f"-{load}", prefix=prefix)


def _replicas(request: Request, quorum: QuorumDescription | None) -> Table[ReplicaRow]:
    rows = [] if quorum is None else replica_rows(quorum)
    return tabulate(request, REPLICA_COLUMNS, rows, sort="role", prefix="quorum.")


class NamedChart(NamedTuple):
    """A chart, or only its title if there are too few values."""

    title: str
    drawn: AxisChart | None


# Title, unit, and the lines of each chart: label and series.
_CHARTS: tuple[tuple[str, Unit, tuple[tuple[str, str], ...]], ...] = (
    ("Records written", "/s", (("records", "records_in"),)),
    ("Bytes", "B/s", (("in", "bytes_in"), ("out", "bytes_out"))),
    ("Produce requests", "ms", (("half within", "produce_p50"), ("99 % within", "produce_p99"))),
    (
        "Fetch requests, with their wait for records", "ms",
        (("half within", "fetch_p50"), ("99 % within", "fetch_p99")),
    ),
)  # fmt: skip
_LAGS_MAX = 4


async def _charts(history: History, span: Span) -> list[NamedChart]:
    names = [name for _, _, lines in _CHARTS for _, name in lines]
    points = await history.lines(names, span.begin)
    charts = [
        NamedChart(
            title,
            axis_chart(title, [Line(label, points[name]) for label, name in lines], unit, span),
        )
        for title, unit, lines in _CHARTS
        if history.has_metrics or unit != "ms"
    ]
    # Samples name all groups that the console may see. A user with own rights may see fewer.
    latest = history.latest if acting_user.get() is None else None
    groups = {} if latest is None else latest.groups
    largest = heapq.nlargest(_LAGS_MAX, groups, key=lambda name: groups[name].lag)
    if largest:
        lags = [Line(name, list(history.group(name))) for name in largest]
        title = "Lag of groups" if len(groups) <= _LAGS_MAX else "Largest lags of groups"
        charts.append(NamedChart(title, axis_chart(title, lags, "", span)))
    return charts


_LARGEST = 20


async def show_broker(request: Request) -> Response:
    """Show a broker."""
    console, query = console_of(request), query_fields(request)
    node = query.number("id")
    found = await console.cluster.call(lambda client: _load_broker(client, node))
    sample = console.history.latest
    return console.page(
        request,
        "broker.html",
        200 if found["info"] else 404,
        node=node,
        release=release(found["features"].get("metadata.version", (0, None))[1]),
        sampled=sample.nodes.get(node) if sample is not None else None,
        configs=config_tables(request, found.pop("configs")),
        directories=tabulate(
            request, _DIRECTORIES, found.pop("directories"), sort="path", prefix="directories."
        ),
        largest=tabulate(
            request, _REPLICAS, found.pop("largest"), sort="-size", prefix="replicas."
        ),
        **found,
    )


_DIRECTORIES: tuple[Column[LogDirectory], ...] = (
    Column("path", "Path", lambda row: row.path, style="mono name long"),
    Column("state", "State", lambda row: "ok" if row.error is None else str(row.error)),
    Column("replicas", "Replicas", lambda row: len(row.replicas), "number"),
    Column("free", "Free", lambda row: row.usable_bytes, "size"),
    Column("total", "Total", lambda row: row.total_bytes, "size"),
)
_REPLICAS: tuple[Column[tuple[int, TopicPartition]], ...] = (
    Column("partition", "Partition", lambda row: row[1]),
    Column("size", "Size", lambda row: row[0], "size"),
)


def _load_broker(client: Client, node: int) -> dict[str, Any]:
    cluster = client.describe_cluster()
    info = next((each for each in (*cluster.brokers, *cluster.fenced) if each.id == node), None)
    is_serving = any(each.id == node for each in cluster.brokers)
    found: dict[str, Any] = {
        "info": info,
        "is_serving": is_serving,
        "is_controller": quorum_state(client).leader == node,
        "configs": [],
        "configs_error": "",
        "store": "",
        "directories": [],
        "largest": [],
        "features": {},
    }
    if not is_serving:
        return found
    found["features"] = client.admin.describe_versions(node).supported_features
    resource = ConfigResource(ResourceType.BROKER, str(node))
    entries = client.admin.describe_configs([resource], synonyms=True, documentation=True)[resource]
    if isinstance(entries, ClientError):
        found["configs_error"] = str(entries)
    else:
        found["configs"] = explained_configs(entries)
        values = {each.name: each.value for each in entries}
        if values.get(SYSTEM_ENABLE) == "true":
            found["store"] = values.get(STORAGE)
    directories = client.admin.describe_log_dirs([node], once=True)[node]
    if not isinstance(directories, ClientError):
        replicas = [
            (replica.size, tp) for each in directories for tp, replica in each.replicas.items()
        ]
        found["directories"] = directories
        found["largest"] = heapq.nlargest(_LARGEST, replicas)
    return found


NAVIGATION = [
    Entry("Cluster", "Overview", "/", ("/broker",)),
]
ROUTES = [
    Route("/", show_cluster),
    Route("/broker", show_broker),
]
