"""Set and reset configs of topics and brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.console.changes.change import Done, Preview, change
from barnabas.console.web.rendering import link

if TYPE_CHECKING:
    from barnabas.client.facade import Client
    from barnabas.console.web.forms import Fields

__all__ = ["ROUTES"]


def set_topic_config(client: Client, form: Fields) -> Done:
    """Set a config of a topic, or reset it to its default."""
    name = form.required("name")
    text = _alter(client, ConfigResource(ResourceType.TOPIC, name), form)
    return Done(f"{name}: {text}", link("/topic", name=name))


def set_broker_config(client: Client, form: Fields) -> Done:
    """Set a config of a broker at run time, or reset it."""
    node = form.number("id")
    text = _alter(client, ConfigResource(ResourceType.BROKER, str(node)), form)
    return Done(f"broker {node}: {text}", link("/broker", id=node))


def _alter(client: Client, resource: ConfigResource, form: Fields) -> str:
    key = form.required("key")
    value = None if form.has("reset") else form.stripped("value")
    client.admin.alter_configs(resource, {key: value})
    return f"{key} is reset" if value is None else f"{key} is {value}"


def preview_reset(client: Client, form: Fields) -> Preview | None:
    """Return the value that a reset removes; None if a value is set."""
    if not form.has("reset"):
        return None
    key = form.required("key")
    if form.has("name"):
        resource = ConfigResource(ResourceType.TOPIC, form.required("name"))
    else:
        resource = ConfigResource(ResourceType.BROKER, str(form.number("id")))
    entries = client.admin.describe_configs([resource], keys=[key])[resource]
    if isinstance(entries, ClientError):
        raise entries
    rows: list[tuple[object, ...]] = [
        (each.name, "secret" if each.is_sensitive else each.value, each.source) for each in entries
    ]
    columns = ("Config", "Value that is removed", "Source")
    return Preview(f"Reset {key} of {resource} to its default?", "Reset it", columns, rows)


ROUTES = [
    change("/topic/config", set_topic_config, preview_reset),
    change("/broker/config", set_broker_config, preview_reset),
]
