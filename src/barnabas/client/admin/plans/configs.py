"""Plans for configs and quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin import configs
from barnabas.client.admin.plans.cluster import require_broker
from barnabas.client.connections.cluster import ANY_NODE, CONTROLLER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.admin.call import AdminCall, Plan
    from barnabas.client.admin.configs import ConfigEntry, ConfigResource, QuotaEntity, ResourceType
    from barnabas.client.admin.sender import AdminSender
    from barnabas.client.errors import ClientError


def describe_configs(
    sender: AdminSender,
    resources: Sequence[ConfigResource],
    *,
    keys: Sequence[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> Plan[dict[ConfigResource, list[ConfigEntry] | ClientError]]:
    """Describe the configs of each resource: those of `keys`, or all.

    `synonyms` and `documentation` request these fields of the entries.

    Returns:
        The configs, or an error, for each resource.
    """
    by_node: dict[int, list[ConfigResource]] = {}
    for resource in resources:
        node = resource.node_id
        by_node.setdefault(ANY_NODE if node is None else node, []).append(resource)
    found: dict[ConfigResource, list[ConfigEntry] | ClientError] = {}
    for node, part in by_node.items():
        yield from require_broker(sender, node)
        call = configs.describe_configs(
            part, keys=keys, synonyms=synonyms, documentation=documentation
        )
        found.update((yield from sender.send(node, call)))
    return found


def alter_configs(
    sender: AdminSender,
    resource: ConfigResource,
    changes: Mapping[str, str | None],
    *,
    validate_only: bool = False,
) -> Plan[None]:
    """Set configs of a resource; a value of None resets the config to its default.

    Raises:
        BrokerError: the change was refused; nothing was changed.
    """
    call = configs.alter_configs(resource, changes, validate_only=validate_only)
    yield from _send(sender, resource, call)


def change_config_list(
    sender: AdminSender,
    resource: ConfigResource,
    *,
    append: Mapping[str, str] | None = None,
    subtract: Mapping[str, str] | None = None,
) -> Plan[None]:
    """Add values to configs that are lists, or remove values; other values stay.

    The values of `append` and `subtract` are comma-separated lists, by config name.

    Raises:
        BrokerError: the change was refused; nothing was changed.
    """
    call = configs.change_config_list(resource, append or {}, subtract or {})
    yield from _send(sender, resource, call)


def replace_configs(
    sender: AdminSender,
    resource: ConfigResource,
    values: Mapping[str, str],
    *,
    validate_only: bool = False,
) -> Plan[None]:
    """Replace all configs of a resource (AlterConfigs); others return to their defaults.

    The call overwrites concurrent changes of other clients. Prefer `alter_configs`.

    Raises:
        BrokerError: the change was refused; nothing was changed.
    """
    call = configs.replace_configs(resource, values, validate_only=validate_only)
    yield from _send(sender, resource, call)


def _send(sender: AdminSender, resource: ConfigResource, call: AdminCall[bool]) -> Plan[None]:
    node = resource.node_id
    if node is not None:
        yield from require_broker(sender, node)
    yield from sender.send(CONTROLLER if node is None else node, call)


def list_config_resources(
    sender: AdminSender, types: Sequence[ResourceType] = ()
) -> Plan[list[ConfigResource]]:
    """List resources of these types that have configs; no types means all types."""
    return sender.send(ANY_NODE, configs.list_config_resources(types))


def describe_quotas(
    sender: AdminSender, components: Mapping[str, str | None], *, strict: bool = False
) -> Plan[dict[QuotaEntity, dict[str, float]]]:
    """Describe the quotas of the entities that match all components.

    `components` maps "user", "client-id" or "ip" to a name; None is the default entity, "*" any
    name. With `strict`, entities with further components do not match.

    Returns:
        The quotas by entity, in Kafka's units: bytes per second for `producer_byte_rate` and
        `consumer_byte_rate`, percent for `request_percentage`.
    """
    return sender.send(ANY_NODE, configs.describe_quotas(components, strict=strict))


def alter_quotas(
    sender: AdminSender,
    entity: QuotaEntity,
    changes: Mapping[str, float | None],
    *,
    validate_only: bool = False,
) -> Plan[None]:
    """Set quotas of an entity; a value of None removes the quota.

    Raises:
        BrokerError: the change was refused.
    """
    call = configs.alter_quotas(entity, changes, validate_only=validate_only)
    yield from sender.send(CONTROLLER, call)
