"""Changes of one config of a broker or a group, with its value before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.units import config_text
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.console.pages.change import Done, Preview, change
from barnabas.console.rendering import link

if TYPE_CHECKING:
    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields


def _typed(form: Fields) -> tuple[str, str | None]:
    """Return the key and the new value; None resets the config."""
    key = form.required("key")
    return key, None if form.has("reset") else config_text(key, form.stripped("value"))


def change_config(client: Client, resource: ConfigResource, form: Fields) -> str:
    """Set or reset the config of a form; return what happened."""
    key, value = _typed(form)
    client.admin.alter_configs(resource, {key: value})
    return f"{key} is reset" if value is None else f"{key} is {value}"


def preview_config(client: Client, resource: ConfigResource, form: Fields) -> Preview:
    """Return the value of a config before and after, checked by the cluster."""
    key, value = _typed(form)
    entries = client.admin.describe_configs([resource], keys=[key])[resource]
    if isinstance(entries, ClientError):
        raise entries
    client.admin.alter_configs(resource, {key: value}, validate_only=True)
    before = next((each for each in entries if each.name == key), None)
    is_secret = before is not None and before.is_sensitive
    row = (
        key,
        None if before is None else "secret" if is_secret else before.value,
        None if before is None else before.source,
        "its default" if value is None else "secret" if is_secret else value,
    )
    verb = "Reset" if value is None else "Change"
    columns = ("Config", "Now", "Source now", "After")
    return Preview(f"{verb} {key} of {resource}?", f"{verb} it", columns, [row])


def _broker(form: Fields) -> ConfigResource:
    return ConfigResource(ResourceType.BROKER, str(form.number("id")))


def set_broker_config(client: Client, form: Fields) -> Done:
    """Set a config of a broker at run time, or reset it."""
    text = change_config(client, _broker(form), form)
    node = form.number("id")
    return Done(f"broker {node}: {text}", link("/broker", id=node))


ROUTES = [
    change(
        "/broker/config",
        set_broker_config,
        lambda client, form: preview_config(client, _broker(form), form),
    ),
]
