"""Changes of connectors: their states, configs and offsets, and their deletion."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.console.access.users import Role
from barnabas.console.connect.config_form import config_changes, secret_names, submitted_config
from barnabas.console.connect.rest import ConnectError, Offset
from barnabas.console.forms import FormError
from barnabas.console.pages.change import Done, Preview, Shown, change
from barnabas.console.pages.connect import form_values, offset_row
from barnabas.console.rendering import link
from barnabas.console.tables import columns_of

if TYPE_CHECKING:
    from barnabas.client.facade import Client
    from barnabas.console.connect.rest import ConnectCluster, Connector
    from barnabas.console.console import Console
    from barnabas.console.forms import Fields

# Connect clusters by name.
Clusters = dict[str, "ConnectCluster"]
_NOT_FOUND = 404
# Configs with fields of their own in the form.
_OWN_FIELDS = ("name", "connector.class")
_STATES = {"pause": "paused", "resume": "resumed", "stop": "stopped"}


def _clusters(console: Console, _client: Client) -> Clusters:
    return console.connect


def _cluster(clusters: Clusters, form: Fields) -> ConnectCluster:
    name = form.required("cluster")
    if name not in clusters:
        raise FormError(f"the console has no Connect cluster {name}")
    return clusters[name]


def _page(form: Fields, name: str) -> str:
    return link("/connect/connector", cluster=form.required("cluster"), name=name)


def set_state(clusters: Clusters, form: Fields) -> Done:
    """Pause, resume or stop a connector."""
    name, verb = form.required("name"), form.required("verb")
    if verb not in _STATES:
        raise FormError(f"verb must be one of {', '.join(_STATES)}, not {verb}")
    _cluster(clusters, form).set_state(name, verb)
    return Done(f"{_STATES[verb]} {name}: its tasks follow in a moment", _page(form, name))


def restart(clusters: Clusters, form: Fields) -> Done:
    """Restart a connector with its tasks, what failed, or one task."""
    name, cluster = form.required("name"), _cluster(clusters, form)
    if form.has("task"):
        task = form.number("task")
        cluster.restart_task(name, task)
        return Done(f"restarted task {task} of {name}", _page(form, name))
    only_failed = form.has("failed")
    cluster.restart(name, only_failed=only_failed)
    what = "what failed of" if only_failed else "all tasks of"
    return Done(f"restarted {what} {name}", _page(form, name))


def save(clusters: Clusters, form: Fields) -> Done:
    """Create a connector, or change its config."""
    name, cluster = form.required("name"), _cluster(clusters, form)
    existing, plugin = _existing(cluster, name), form.required("plugin")
    present = {} if existing is None else existing.info.config
    config = submitted_config(form, present, secret_names(cluster.definitions(plugin)))
    cluster.put_config(name, {**config, "name": name, "connector.class": plugin})
    done = "created" if existing is None else "changed"
    return Done(f"{done} {name}", _page(form, name))


def preview_save(clusters: Clusters, form: Fields) -> Preview | Shown:
    """Return the changed configs; the form again if the plug-in finds errors."""
    name, plugin, cluster = form.stripped("name"), form.required("plugin"), _cluster(clusters, form)
    existing = _existing(cluster, name) if name else None
    is_new = form.has("is_new")
    present = {} if existing is None else existing.info.config
    if is_new and existing is not None:
        raise FormError(f"there is a connector {name} already: choose another name")
    secrets = secret_names(cluster.definitions(plugin))
    config = submitted_config(form, present, secrets)
    values = form_values(cluster, name, plugin, config, is_new=is_new, errors=True)
    if values["form"].error_count or form.has("check") or not name:
        return Shown("connector_form.html", values)
    before = {key: value for key, value in present.items() if key not in _OWN_FIELDS}
    rows: list[tuple[object, ...]] = list(config_changes(before, config, secrets))
    columns = columns_of("Config", "Now", "After")
    if is_new:
        return Preview(f"Create the connector {name}?", "Create it", columns, rows)
    warning = "Connect restarts the tasks of the connector." if rows else ""
    return Preview(f"Change the connector {name}?", "Change it", columns, rows, warning)


def _existing(cluster: ConnectCluster, name: str) -> Connector | None:
    try:
        return cluster.connector(name)
    except ConnectError as error:
        if error.status == _NOT_FOUND:
            return None
        raise


def delete(clusters: Clusters, form: Fields) -> Done:
    """Delete a connector."""
    name = form.required("name")
    _cluster(clusters, form).delete(name)
    return Done(f"deleted {name}", "/connect")


def preview_delete(clusters: Clusters, form: Fields) -> Preview:
    """Return the connector, and what stays."""
    name, cluster = form.required("name"), _cluster(clusters, form)
    form.confirm(name)
    found = cluster.connector(name)
    states = " ".join(each.state for each in found.status.tasks) or "none"
    row = (name, found.type, found.plugin, found.state, states, ", ".join(cluster.topics(name)))
    columns = columns_of("Connector", "Type", "Plug-in", "State", "Tasks", "Topics")
    text = "Its config is lost. Its topics, its offsets and the group of a sink stay."
    return Preview(f"Delete the connector {name}?", "Delete it", columns, [row], text)


def alter_offsets(clusters: Clusters, form: Fields) -> Done:
    """Set offsets of a stopped connector."""
    name = form.required("name")
    message = _cluster(clusters, form).alter_offsets(name, _offsets(form))
    return Done(message or f"set the offsets of {name}", _page(form, name))


def preview_alter(clusters: Clusters, form: Fields) -> Preview:
    """Return the offsets before and after."""
    name, cluster = form.required("name"), _cluster(clusters, form)
    _need_stopped(cluster, name)
    present = dict(offset_row(each) for each in cluster.offsets(name))
    wanted = [offset_row(each) for each in _offsets(form)]
    rows: list[tuple[object, ...]] = [
        (partition, present.get(partition), "removed" if after == "–" else after)
        for partition, after in wanted
        if present.get(partition) != after
    ]
    columns = columns_of("Partition", "Now", "After")
    text = "A source may read records again or leave some out; a sink may write them again."
    return Preview(f"Move the offsets of {name}?", "Move them", columns, rows, text)


def reset_offsets(clusters: Clusters, form: Fields) -> Done:
    """Remove all offsets of a stopped connector."""
    name = form.required("name")
    message = _cluster(clusters, form).reset_offsets(name)
    return Done(message or f"removed the offsets of {name}", _page(form, name))


def preview_reset(clusters: Clusters, form: Fields) -> Preview:
    """Return the offsets that are removed."""
    name, cluster = form.required("name"), _cluster(clusters, form)
    _need_stopped(cluster, name)
    rows: list[tuple[object, ...]] = [offset_row(each) for each in cluster.offsets(name)]
    text = "The connector begins again: it may copy all records a second time."
    columns = columns_of("Partition", "Offset that is removed")
    return Preview(f"Remove all offsets of {name}?", "Remove them", columns, rows, text)


def _need_stopped(cluster: ConnectCluster, name: str) -> None:
    if cluster.connector(name).status.connector.state != "STOPPED":
        raise FormError(f"{name} is not stopped, so its offsets cannot be moved: stop it first")


def _offsets(form: Fields) -> list[Offset]:
    try:
        return msgspec.json.decode(form.required("offsets"), type=list[Offset])
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormError(
            f'the offsets are not JSON such as [{{"partition": {{}}, "offset": {{}}}}]: {error}'
        ) from None


_change = partial(change, of=_clusters, needs_brokers=False)
ROUTES = [
    _change("/connect/state", set_state),
    _change("/connect/restart", restart),
    _change("/connect/save", save, preview_save),
    _change("/connect/delete", delete, preview_delete, role=Role.ADMIN),
    _change("/connect/offsets/alter", alter_offsets, preview_alter),
    _change("/connect/offsets/reset", reset_offsets, preview_reset, role=Role.ADMIN),
]
