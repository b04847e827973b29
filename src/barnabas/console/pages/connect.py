"""Kafka Connect: clusters, connectors and plug-ins, one connector, and the form of its config."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.routing import Route

from barnabas.cli.admin.group_lag import group_progress
from barnabas.client.errors import ClientError
from barnabas.console.access.users import Role
from barnabas.console.connect.config_form import config_form, secret_names, shown_config
from barnabas.console.connect.rest import ConnectError
from barnabas.console.console import console_of
from barnabas.console.forms import query_fields
from barnabas.console.navigation import Entry
from barnabas.console.tables import Column, tabulate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client
    from barnabas.console.connect.config_form import Row
    from barnabas.console.connect.rest import (
        ConnectCluster,
        Connector,
        Offset,
        Plugin,
        State,
        Worker,
    )
    from barnabas.console.console import Console
    from barnabas.console.tables import Table

_OFFSETS_MAX = 200
_LAG_MS = 5_000


class ClusterFound(NamedTuple):
    """What a Connect cluster answered."""

    name: str
    url: str
    # "" if the cluster answered.
    error: str
    worker: Worker | None = None
    connectors: tuple[Connector, ...] = ()
    plugins: tuple[Plugin, ...] = ()

    @property
    def workers(self) -> list[str]:
        """The workers that run connectors or tasks."""
        states = [each for found in self.connectors for each in found.states]
        return sorted({each.worker_id for each in states if each.worker_id})

    def uses(self, kafka_cluster_id: str | None) -> bool:
        """Return whether the workers use the Kafka cluster with this id."""
        return self.worker is not None and self.worker.kafka_cluster_id == kafka_cluster_id


class ConnectorRow(NamedTuple):
    """A connector in the list of all clusters."""

    cluster: str
    connector: Connector
    # The lag of the group of a sink; None if it is unknown.
    lag: int | None

    @property
    def running(self) -> int:
        """The number of tasks that run."""
        return sum(each.state == "RUNNING" for each in self.connector.status.tasks)


_COLUMNS: tuple[Column[ConnectorRow], ...] = (
    Column("name", "Connector", lambda row: row.connector.name),
    Column("cluster", "Connect cluster", lambda row: row.cluster, "text"),
    Column("type", "Type", lambda row: row.connector.type, "text"),
    Column("plugin", "Plug-in", lambda row: short_class(row.connector.plugin)),
    Column("state", "State", lambda row: row.connector.state),
    Column("tasks", "Tasks that run", lambda row: row.running, numeric=True),
    Column("lag", "Lag", lambda row: row.lag, "number"),
)  # fmt: skip


_CLUSTERS: tuple[Column[ClusterFound], ...] = (
    Column("name", "Connect cluster", lambda row: row.name, "name"),
    Column("address", "Address", lambda row: row.url, "mono"),
    Column("version", "Version", lambda row: row.worker.version if row.worker else None, "text"),
    Column(
        "workers",
        "Workers with tasks",
        lambda row: ", ".join(row.workers),
        "name",
    ),
    Column(
        "connectors",
        "Connectors",
        lambda row: len(row.connectors) if row.worker else None,
        "number",
    ),
    Column("plugins", "Plug-ins", lambda row: len(row.plugins) if row.worker else None, "number"),
    Column("change", "Change"),
)
_PLUGINS: tuple[Column[Plugin], ...] = (
    Column("class", "Class", lambda row: row.name, "name"),
    Column("type", "Type", lambda row: row.type, "text"),
    Column("version", "Version", lambda row: row.version, "text"),
)
# The plug-ins of which a new connector can be made, by their short names.
_CONNECTOR_PLUGINS: tuple[Column[Plugin], ...] = (
    Column("connector", "Connector", lambda row: short_class(row.name)),
    *_PLUGINS[1:],
    _PLUGINS[0],
)


def plugin_table(
    request: Request,
    plugins: Sequence[Plugin],
    columns: Sequence[Column[Plugin]],
    prefix: str = "",
) -> Table[Plugin]:
    """Return a table of plug-ins."""
    return tabulate(
        request,
        columns,
        plugins,
        text=lambda row: f"{row.name} {row.type}",
        sort=columns[0].key,
        prefix=prefix,
    )


def short_class(name: str) -> str:
    """Return the name of a class without its package."""
    return name.rpartition(".")[2]


async def show_clusters(request: Request) -> Response:
    """Show the connectors of all Connect clusters."""
    console = console_of(request)
    own_id = await console.cluster.call(_cluster_id, needs_brokers=False)
    loads = [console.call_service(partial(_load, each)) for each in console.connect.values()]
    found = await asyncio.gather(*loads)
    rows = [
        ConnectorRow(
            each.name,
            connector,
            _sampled_lag(console, connector) if each.uses(own_id) else None,
        )
        for each in found
        for connector in each.connectors
    ]
    return console.page(
        request,
        "connect.html",
        clusters=found,
        cluster_table=tabulate(
            request,
            _CLUSTERS if console.role_of(request) >= Role.OPERATOR else _CLUSTERS[:-1],
            found,
            sort="name",
            prefix="clusters.",
        ),
        plugin_tables={
            each.name: plugin_table(request, each.plugins, _PLUGINS, f"plugins.{each.name}.")
            for each in found
            if each.plugins
        },
        table=tabulate(request, _COLUMNS, rows, text=_text, sort="name"),
        has_connectors=bool(rows),
        short_class=short_class,
    )


def _text(row: ConnectorRow) -> str:
    connector = row.connector
    words = (row.cluster, connector.name, connector.type, connector.plugin, connector.state)
    return " ".join(words)


def _load(cluster: ConnectCluster) -> ClusterFound:
    """Return what a cluster answers; its error is a part of the result."""
    try:
        return ClusterFound(
            cluster.name,
            cluster.url,
            "",
            cluster.worker(),
            tuple(cluster.connectors()),
            tuple(cluster.plugins()),
        )
    except ConnectError as error:
        return ClusterFound(cluster.name, cluster.url, str(error))


def _cluster_id(client: Client) -> str | None:
    """Return the id of the Kafka cluster; None if no broker answers."""
    client.limit_total(_LAG_MS)
    try:
        return client.describe_cluster().cluster_id
    except (ClientError, TimeoutError):
        return None


def _sampled_lag(console: Console, connector: Connector) -> int | None:
    latest = console.history.latest
    if latest is None or connector.type != "sink":
        return None
    group = latest.groups.get(group_of(connector))
    return None if group is None else group.lag


def group_of(connector: Connector) -> str:
    """Return the group in which a sink reads its topics."""
    own = connector.info.config.get("consumer.override.group.id")
    return own or f"connect-{connector.name}"


def cluster_named(console: Console, name: str) -> ConnectCluster:
    """Return a Connect cluster.

    Raises:
        HTTPException: The console has no such cluster (404).
    """
    found = console.connect.get(name)
    if found is None:
        raise HTTPException(404, f"the console has no Connect cluster {name}: --connect adds one")
    return found


_TASKS: tuple[Column[State], ...] = (
    Column("task", "Task", lambda task: task.id),
    Column("state", "State", lambda task: task.state),
    Column("worker", "Worker", lambda task: task.worker_id, "mono"),
    Column("error", "Error", lambda task: task.trace or None),
    Column("change", "Change"),
)


_CONFIG: tuple[Column[Row], ...] = (
    Column("name", "Config", lambda row: row.name, "name"),
    Column("value", "Value", lambda row: row.value, style="value"),
)
# The texts of a partition and its offset.
_OFFSETS: tuple[Column[tuple[str, str]], ...] = (
    Column("partition", "Partition", lambda row: row[0], style="value mono"),
    Column("offset", "Offset", lambda row: row[1], style="value"),
)


async def show_connector(request: Request) -> Response:
    """Show a connector."""
    console, query = console_of(request), query_fields(request)
    cluster = cluster_named(console, query.required("cluster"))
    name = query.required("name")
    found = await console.call_service(lambda: _load_connector(cluster, name))
    connector: Connector = found["connector"]
    progress = None
    if connector.type == "sink":
        progress = await console.cluster.call(
            lambda client: _lag(client, found["kafka_cluster_id"], group_of(connector)),
            needs_brokers=False,
        )
    # Only users that may restart a task have buttons in the table.
    columns = _TASKS if console.role_of(request) >= Role.OPERATOR else _TASKS[:-1]
    return console.page(
        request,
        "connector.html",
        tasks=tabulate(
            request,
            columns,
            connector.status.tasks,
            text=lambda task: f"{task.id} {task.state} {task.worker_id} {task.trace or ''}",
            sort="task",
        ),
        cluster=cluster.name,
        group=group_of(connector),
        lag=progress,
        lags=list(console.history.group(group_of(connector))),
        short_class=short_class,
        config=tabulate(
            request,
            _CONFIG,
            found.pop("config"),
            text=lambda row: f"{row.name} {'' if row.is_secret else row.value}",
            sort="name",
            prefix="config.",
        ),
        offsets=tabulate(request, _OFFSETS, found.pop("offsets"), text=" ".join, prefix="offsets."),
        **found,
    )


def _load_connector(cluster: ConnectCluster, name: str) -> dict[str, Any]:
    connector = cluster.connector(name)
    secrets = secret_names(cluster.definitions(connector.plugin))
    found: dict[str, Any] = {
        "connector": connector,
        "config": shown_config(connector.info.config, secrets),
        "kafka_cluster_id": cluster.worker().kafka_cluster_id,
        "topics": [],
        "offsets": [],
        "offsets_json": "",
        "offsets_error": "",
        "left_out": 0,
    }
    try:
        found["topics"] = cluster.topics(name)
        offsets = cluster.offsets(name)
        found["offsets"] = [offset_row(each) for each in offsets[:_OFFSETS_MAX]]
        found["left_out"] = max(0, len(offsets) - _OFFSETS_MAX)
        found["offsets_json"] = offsets_text(offsets[:_OFFSETS_MAX])
    except ConnectError as error:
        # Workers before 3.6 have no offsets, and those before 2.5 no topics.
        found["offsets_error"] = str(error)
    return found


def offset_row(offset: Offset) -> tuple[str, str]:
    """Return the texts of a partition and its offset."""
    return _json(offset.partition), "–" if offset.offset is None else _json(offset.offset)


def offsets_text(offsets: list[Offset]) -> str:
    """Return offsets as JSON, one on a line, as the form has them."""
    lines = ",\n".join(_json(each) for each in offsets)
    return f"[\n{lines}\n]" if lines else "[]"


def _json(value: object) -> str:
    encoded = msgspec.json.encode(value, order="sorted")
    return msgspec.json.format(encoded, indent=0).decode()


def _lag(client: Client, kafka_cluster_id: str, group: str) -> int | None:
    """Return the lag of a group; None if the workers use another Kafka cluster."""
    if _cluster_id(client) != kafka_cluster_id:
        return None
    try:
        progress = group_progress(client, [group])[group]
    except (ClientError, TimeoutError):
        return None
    if isinstance(progress, ClientError) or not progress.partitions:
        return None
    return progress.lag


async def show_form(request: Request) -> Response:
    """Show the form of a new connector, or of one that exists."""
    console, query = console_of(request), query_fields(request)
    if console.role_of(request) < Role.OPERATOR:
        # The check of a config may make a plug-in connect to other systems.
        raise HTTPException(403, "the form of a connector needs a log-in with the role operator")
    cluster = cluster_named(console, query.required("cluster"))
    name, plugin = query.stripped("name"), query.stripped("plugin")
    if name:
        values = await console.call_service(lambda: _load_existing(cluster, name))
    elif plugin:
        values = await console.call_service(lambda: form_values(cluster, "", plugin, {}))
    else:
        plugins = await console.call_service(cluster.plugins)
        connectors = [each for each in plugins if each.type in ("source", "sink")]
        return console.page(
            request,
            "connect_plugins.html",
            cluster=cluster.name,
            table=plugin_table(request, connectors, _CONNECTOR_PLUGINS),
        )
    return console.page(request, "connector_form.html", **values)


def _load_existing(cluster: ConnectCluster, name: str) -> dict[str, Any]:
    connector = cluster.connector(name)
    config = {key: value for key, value in connector.info.config.items() if value}
    return form_values(cluster, name, connector.plugin, config)


def form_values(
    cluster: ConnectCluster,
    name: str,
    plugin: str,
    config: Mapping[str, str],
    *,
    is_new: bool | None = None,
    errors: bool = False,
) -> dict[str, Any]:
    """Return the values of the template of a form.

    Args:
        cluster: The Connect cluster.
        name: The connector; "" if it has no name yet.
        plugin: The class of the connector.
        config: The config, with its secrets.
        is_new: Whether the connector does not exist; None if that is so without a name.
        errors: Whether the form shows the errors of the plug-in.
    """
    validation = cluster.validate(plugin, {**config, "name": name or "new"})
    return {
        "cluster": cluster.name,
        "name": name,
        "plugin": plugin,
        "is_new": not name if is_new is None else is_new,
        "form": config_form(validation, config, errors=errors),
        "is_checked": errors,
        "short_class": short_class,
    }


NAVIGATION = [
    Entry("Connect", "Connectors", "/connect", ("/connect/connector", "/connect/form")),
]
ROUTES = [
    Route("/connect", show_clusters),
    Route("/connect/connector", show_connector),
    Route("/connect/form", show_form),
]
