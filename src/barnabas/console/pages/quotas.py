"""Settings for clients: quotas, and subscriptions to their metrics (client telemetry)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.routing import Route

from barnabas.cli.admin.quotas import ENTITY_TYPES, entity, entity_text, quota_text
from barnabas.cli.common.units import config_text
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.console.access.users import Role
from barnabas.console.console import console_of
from barnabas.console.formats import size
from barnabas.console.forms import FormError, query_fields
from barnabas.console.navigation import Entry
from barnabas.console.pages.change import Done, Preview, change
from barnabas.console.tables import Column, columns_of, tabulate
from barnabas.metadata.client_metrics_configs import INTERVAL_MS, MATCH, METRICS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.admin.configs import QuotaEntity
    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields

# Quota: the unit of its limit.
_UNITS = {
    "producer_byte_rate": "bytes/s",
    "consumer_byte_rate": "bytes/s",
    "request_percentage": "% of a thread",
    "controller_mutation_rate": "partitions/s",
    "connection_creation_rate": "connections/s",
}
_SUBSCRIPTIONS_MAX = 500
# Field of the form: the kind of entity, and the entities that its default is for.
_ENTITIES = {
    "user": ("User", "all users"),
    "client_id": ("Client id", "all client ids"),
    "ip": ("IP address", "all IP addresses"),
}
_QUOTAS, _TELEMETRY = "/quotas", "/telemetry"
_DEFAULT = "(default)"


class QuotaRow(NamedTuple):
    """One quota of one entity."""

    entity: QuotaEntity
    key: str
    value: float

    @property
    def name(self) -> str:
        """The parts of the entity in words."""
        return entity_text(self.entity)

    @property
    def text(self) -> str:
        """The value with its unit."""
        unit = _UNITS.get(self.key, "")
        rounded = f" ({size(self.value)}/s)" if unit == "bytes/s" and self.value >= 1024 else ""
        return f"{quota_text(self.value)} {unit}{rounded}".strip()

    @property
    def fields(self) -> dict[str, str]:
        """The fields of a form that name the entity."""
        return {
            f"default_{_field(kind)}" if name is None else _field(kind): name or "1"
            for kind, name in self.entity
        }


_QUOTA_COLUMNS: tuple[Column[QuotaRow], ...] = (
    Column("entity", "For", lambda row: row.name, "name"),
    Column("quota", "Quota", lambda row: row.key, "text"),
    Column("value", "Limit", lambda row: row.value, numeric=True),
    Column("change", "Change"),
)


def _field(kind: str) -> str:
    return kind.replace("-", "_")


async def show_quotas(request: Request) -> Response:
    """Show the quotas of all entities."""
    console = console_of(request)
    rows, problem = await console.cluster.call(_load_quotas)
    is_administrator = console.role_of(request) >= Role.ADMIN
    columns = _QUOTA_COLUMNS if is_administrator else _QUOTA_COLUMNS[:-1]
    table = tabulate(
        request, columns, rows, text=lambda row: f"{row.name} {row.key}", sort="entity"
    )
    keys = [(key, f"{key} ({unit})") for key, unit in _UNITS.items()]
    return console.page(
        request, "quotas.html", table=table, problem=problem, keys=keys, kinds=_ENTITIES
    )


def _load_quotas(client: Client) -> tuple[list[QuotaRow], str]:
    try:
        found = client.admin.describe_quotas({})
    except ClientError as error:
        return [], str(error)
    rows = [
        QuotaRow(owner, key, value)
        for owner, quotas in found.items()
        for key, value in quotas.items()
    ]
    return rows, ""


def _owner(form: Fields) -> QuotaEntity:
    given: dict[str, object] = {}
    for kind in map(_field, ENTITY_TYPES):
        given[kind] = form.stripped(kind) or None
        given[f"default_{kind}"] = form.has(f"default_{kind}")
    owner = tuple(sorted(entity(given).items()))
    if not owner:
        raise FormError("write a user, a client id or an IP address, or check one of the defaults")
    return owner


def _key(form: Fields) -> str:
    return form.one_of("quota", _UNITS)


def set_quota(client: Client, form: Fields) -> Done:
    """Set a quota of an entity."""
    owner, key, text = _owner(form), _key(form), form.required("value")
    try:
        value = float(config_text(key, text))
    except ValueError:
        label = form.label("value")
        raise FormError(f"{label}: {text} is not a number for {key}", "value") from None
    client.admin.alter_quotas(owner, {key: value})
    text = f"set {key} of {entity_text(owner)} to {quota_text(value)}"
    return Done(text, _QUOTAS, is_reported=lambda own: _quota(own, owner, key) == value)


def remove_quota(client: Client, form: Fields) -> Done:
    """Remove a quota of an entity."""
    owner, key = _owner(form), _key(form)
    client.admin.alter_quotas(owner, {key: None})
    text = f"removed {key} of {entity_text(owner)}"
    return Done(text, _QUOTAS, is_reported=lambda own: _quota(own, owner, key) is None)


def _quota(client: Client, owner: QuotaEntity, key: str) -> float | None:
    return client.admin.describe_quotas(dict(owner), strict=True).get(owner, {}).get(key)


def preview_remove_quota(client: Client, form: Fields) -> Preview:
    """Return the quota that is removed."""
    owner, key = _owner(form), _key(form)
    value = _quota(client, owner, key)
    if value is None:
        raise FormError(f"{entity_text(owner)} has no quota {key}")
    columns = columns_of("For", "Quota", "Limit")
    row = (entity_text(owner), key, quota_text(value))
    text = "Without it, the next more general quota applies, if there is one."
    return Preview("Remove this quota?", "Remove it", columns, [row], text)


class Subscription(NamedTuple):
    """A subscription to metrics of clients."""

    name: str
    metrics: str
    interval_ms: int
    match: str


_SUBSCRIPTION_COLUMNS: tuple[Column[Subscription], ...] = (
    Column("name", "Subscription", lambda row: row.name),
    Column("metrics", "Metrics", lambda row: row.metrics),
    Column("interval", "Interval", lambda row: row.interval_ms, numeric=True),
    Column("match", "Clients", lambda row: row.match),
)


async def show_telemetry(request: Request) -> Response:
    """Show the subscriptions to metrics of clients."""
    console, query = console_of(request), query_fields(request)
    rows, problem = await console.cluster.call(_load_subscriptions)
    name = query.stripped("name")
    table = tabulate(
        request,
        _SUBSCRIPTION_COLUMNS,
        rows,
        text=lambda row: f"{row.name} {row.metrics}",
        sort="name",
    )
    edited = next((row for row in rows if row.name == name), None)
    return console.page(request, "telemetry.html", table=table, problem=problem, edited=edited)


def _load_subscriptions(client: Client) -> tuple[list[Subscription], str]:
    try:
        found = client.admin.list_config_resources([ResourceType.CLIENT_METRICS])
        wanted = sorted(found)[:_SUBSCRIPTIONS_MAX]
        described: dict[ConfigResource, Any] = (
            client.admin.describe_configs(wanted) if wanted else {}
        )
    except ClientError as error:
        return [], str(error)
    rows = []
    for resource, entries in described.items():
        if not isinstance(entries, ClientError):
            values = {each.name: each.value or "" for each in entries}
            interval = int(values.get(INTERVAL_MS) or 0)
            rows.append(
                Subscription(
                    resource.name, values.get(METRICS, ""), interval, values.get(MATCH, "")
                )
            )
    return rows, ""


def save_subscription(client: Client, form: Fields) -> Done:
    """Create a subscription, or change it."""
    name = form.required("name")
    interval = form.stripped("interval")
    changes = {
        METRICS: form.required("metrics"),
        INTERVAL_MS: config_text(INTERVAL_MS, interval) if interval else None,
        MATCH: form.stripped("match") or None,
    }
    client.admin.alter_configs(ConfigResource(ResourceType.CLIENT_METRICS, name), changes)
    text = f"saved the subscription {name}"
    return Done(text, _TELEMETRY, is_reported=lambda own: _subscription(own, name) is not None)


def _subscription(client: Client, name: str) -> Subscription | None:
    return next((each for each in _load_subscriptions(client)[0] if each.name == name), None)


def delete_subscription(client: Client, form: Fields) -> Done:
    """Delete a subscription: it exists as long as it has a config."""
    name = form.required("name")
    nothing: dict[str, str | None] = dict.fromkeys((METRICS, INTERVAL_MS, MATCH))
    client.admin.alter_configs(ConfigResource(ResourceType.CLIENT_METRICS, name), nothing)
    text = f"deleted the subscription {name}"
    return Done(text, _TELEMETRY, is_reported=lambda own: _subscription(own, name) is None)


def preview_delete_subscription(client: Client, form: Fields) -> Preview:
    """Return the subscription that is deleted."""
    name = form.required("name")
    found = _subscription(client, name)
    if found is None:
        raise FormError(f"there is no subscription {name}")
    columns = columns_of("Subscription", "Metrics", ("Interval (ms)", "number"), "Clients")
    text = "Clients stop pushing these metrics."
    return Preview(f"Delete the subscription {name}?", "Delete it", columns, [tuple(found)], text)


NAVIGATION = [
    Entry("Security", "Quotas", _QUOTAS),
    Entry("Cluster", "Client telemetry", _TELEMETRY),
]
ROUTES = [
    Route(_QUOTAS, show_quotas),
    Route(_TELEMETRY, show_telemetry),
    change("/quotas/set", set_quota, role=Role.ADMIN),
    change("/quotas/remove", remove_quota, preview_remove_quota, role=Role.ADMIN),
    change("/telemetry/save", save_subscription),
    change("/telemetry/delete", delete_subscription, preview_delete_subscription, role=Role.ADMIN),
]
