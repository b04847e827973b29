"""Configs of a broker, a group or a topic: tables of them, and the change of one config."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.common.units import config_text
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.console.pages.change import Done, Preview, change
from barnabas.console.rendering import link
from barnabas.console.tables import Column, columns_of, tabulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields
    from barnabas.console.plans.config_sources import ExplainedConfig
    from barnabas.console.tables import Table

# The columns of configs that are set; those with defaults have no column for the default.
_SET: tuple[Column[ExplainedConfig], ...] = (
    Column("name", "Config", lambda each: each.name),
    Column("value", "Value", lambda each: each.value or "", style="value"),
    Column("default", "Default", lambda each: each.default or "", style="value"),
    Column("reason", "Why", lambda each: each.reason, style="reason wide"),
)
_UNSET = tuple(each for each in _SET if each.key != "default")


class ConfigTables(NamedTuple):
    """The configs of a resource as two tables."""

    # Configs that differ from their defaults, and all others.
    changed: Table[ExplainedConfig]
    others: Table[ExplainedConfig]
    # Names of the configs that a request can change.
    changeable: list[str]


def config_tables(request: Request, found: Sequence[ExplainedConfig]) -> ConfigTables:
    """Return the tables of the configs of a resource."""
    return ConfigTables(
        _table(request, _SET, [each for each in found if each.differs], "set."),
        _table(request, _UNSET, [each for each in found if not each.differs], "config."),
        [each.name for each in found if each.can_change],
    )


def _table(
    request: Request,
    columns: Sequence[Column[ExplainedConfig]],
    rows: Sequence[ExplainedConfig],
    prefix: str,
) -> Table[ExplainedConfig]:
    return tabulate(
        request,
        columns,
        rows,
        text=lambda each: f"{each.name} {'' if each.is_secret else each.value} {each.reason}",
        sort="name",
        prefix=prefix,
    )


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
    columns = columns_of("Config", "Now", "Source now", "After")
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
