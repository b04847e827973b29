"""Configs and quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin import configs, quotas
from barnabas.client.admin.plans.cluster import know
from barnabas.client.cluster import ANY_NODE, CONTROLLER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.admin.call import AdminCall
    from barnabas.client.admin.configs import ConfigEntry, ConfigResource, ResourceType
    from barnabas.client.admin.plan import Plan
    from barnabas.client.admin.quotas import QuotaEntity
    from barnabas.client.admin.sender import AdminSender
    from barnabas.client.errors import ClientError


def describe_configs(
    sender: AdminSender,
    resources: Sequence[ConfigResource],
    *,
    synonyms: bool = False,
    documentation: bool = False,
) -> Plan[dict[ConfigResource, list[ConfigEntry] | ClientError]]:
    """All configs in force of each resource."""
    by_node: dict[int, list[ConfigResource]] = {}
    for resource in resources:
        node = resource.node_id
        by_node.setdefault(ANY_NODE if node is None else node, []).append(resource)
    found: dict[ConfigResource, list[ConfigEntry] | ClientError] = {}
    for node, part in by_node.items():
        yield from know(sender, node)
        call = configs.describe_configs(part, synonyms=synonyms, documentation=documentation)
        found.update((yield from sender.send(node, call)))
    return found


def alter_configs(
    sender: AdminSender,
    resource: ConfigResource,
    changes: Mapping[str, str | None],
    *,
    validate_only: bool = False,
) -> Plan[None]:
    """Set configs of a resource; None takes one back to its default."""
    call = configs.alter_configs(resource, changes, validate_only=validate_only)
    yield from _send(sender, resource, call)


def change_config_list(
    sender: AdminSender,
    resource: ConfigResource,
    *,
    append: Mapping[str, str] | None = None,
    subtract: Mapping[str, str] | None = None,
) -> Plan[None]:
    """Put values into configs that are lists, or take them out, whatever else is in them."""
    call = configs.change_config_list(resource, append or {}, subtract or {})
    yield from _send(sender, resource, call)


def replace_configs(
    sender: AdminSender,
    resource: ConfigResource,
    values: Mapping[str, str],
    *,
    validate_only: bool = False,
) -> Plan[None]:
    """Set these configs and take all others of the resource back to their defaults (AlterConfigs).

    Another's changes since they were read are lost: `alter_configs` is the better call.
    """
    call = configs.replace_configs(resource, values, validate_only=validate_only)
    yield from _send(sender, resource, call)


def _send(sender: AdminSender, resource: ConfigResource, call: AdminCall[bool]) -> Plan[None]:
    node = resource.node_id
    if node is not None:
        yield from know(sender, node)
    yield from sender.send(CONTROLLER if node is None else node, call)


def list_config_resources(
    sender: AdminSender, types: Sequence[ResourceType] = ()
) -> Plan[list[ConfigResource]]:
    """Resources of these types that have configs of their own: client metrics, groups, ..."""
    return sender.send(ANY_NODE, configs.list_config_resources(types))


def describe_quotas(
    sender: AdminSender, components: Mapping[str, str | None], *, strict: bool = False
) -> Plan[dict[QuotaEntity, dict[str, float]]]:
    """Quotas by entity; see `quotas.describe_quotas`."""
    return sender.send(ANY_NODE, quotas.describe_quotas(components, strict=strict))


def alter_quotas(
    sender: AdminSender,
    entity: QuotaEntity,
    changes: Mapping[str, float | None],
    *,
    validate_only: bool = False,
) -> Plan[None]:
    """Set quotas of an entity; None takes one away."""
    call = quotas.alter_quotas(entity, changes, validate_only=validate_only)
    yield from sender.send(CONTROLLER, call)
