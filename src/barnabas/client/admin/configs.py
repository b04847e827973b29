"""Configs of topics, brokers, groups, loggers and client metrics, and client quotas.

Sources: KIP-226, KIP-339, KIP-1142 (configs), KIP-546 (quotas for producing, fetching and request
time).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from barnabas.client.admin.cluster import require_broker
from barnabas.client.admin.sender import AdminCall, fixed_call, raise_error
from barnabas.client.connections.cluster import ANY_NODE, CONTROLLER
from barnabas.client.errors import error_or_none
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_configs import (
    AlterableConfig as ReplacedConfig,
    AlterConfigsRequest,
    AlterConfigsResource as ReplacedResource,
    AlterConfigsResponse,
)
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterConfigsResource,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    EntityDataRequest,
    EntryDataRequest,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    OpData,
)
from barnabas.protocol.resources import ConfigResource, ResourceType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.admin.sender import AdminSender, Plan
    from barnabas.client.errors import ClientError
    from barnabas.protocol.schema import Message


__all__ = ["ConfigEntry", "ConfigResource", "ConfigSynonym", "QuotaEntity", "ResourceType"]

_SET = 0
_DELETE = 1
_APPEND = 2
_SUBTRACT = 3
_DEFAULT_SOURCE = 5
_SOURCES = {
    0: "unknown",
    1: "topic",
    2: "dynamic broker",
    3: "dynamic default broker",
    4: "static broker",
    _DEFAULT_SOURCE: "default",
    6: "dynamic broker logger",
    7: "client metrics",
    8: "group",
}
_TYPES = {
    1: "boolean",
    2: "string",
    3: "int",
    4: "short",
    5: "long",
    6: "double",
    7: "list",
    8: "class",
    9: "password",
}
# Pairs (type, name), sorted by type: user, client-id or ip; a name of None is the default entity.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
_EXACT = 0
_DEFAULT = 1
_ANY = 2
# Matches any name of a type.
ANY_NAME = "*"


class ConfigSynonym(NamedTuple):
    """Another place where a config's value is set, with its name there."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """The effective value of one config of a resource."""

    name: str
    value: str | None
    # Where the value comes from: "topic", "default", "static broker", ...
    source: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    # "int", "list", ...; empty if the broker does not send it.
    type: str = ""
    # All places where the config is set, highest priority first; empty unless requested.
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


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

    def call_for(
        part: Sequence[ConfigResource],
    ) -> AdminCall[dict[ConfigResource, list[ConfigEntry] | ClientError]]:
        def build(version: int) -> Message:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configuration_keys=None if keys is None else list(keys),
                    )
                    for resource in part
                ],
                include_synonyms=synonyms,
            )
            if version >= 3:
                request.include_documentation = documentation
            return request

        return AdminCall(ApiKey.DESCRIBE_CONFIGS, build, _described)

    by_node: dict[int, list[ConfigResource]] = {}
    for resource in resources:
        node = resource.node_id
        by_node.setdefault(ANY_NODE if node is None else node, []).append(resource)
    found: dict[ConfigResource, list[ConfigEntry] | ClientError] = {}
    for node, part in by_node.items():
        yield from require_broker(sender, node)
        found.update((yield from sender.send(node, call_for(part))))
    return found


def _described(
    response: DescribeConfigsResponse,
) -> dict[ConfigResource, list[ConfigEntry] | ClientError]:
    found: dict[ConfigResource, list[ConfigEntry] | ClientError] = {}
    for result in response.results:
        resource = ConfigResource(ResourceType(result.resource_type), result.resource_name)
        found[resource] = error_or_none(
            result.error_code, f"configs of {resource}", result.error_message
        ) or [_entry(entry) for entry in result.configs]
    return found


def _entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=_SOURCES.get(entry.config_source, "unknown"),
        is_default=entry.config_source == _DEFAULT_SOURCE,
        is_read_only=entry.read_only,
        is_sensitive=entry.is_sensitive,
        type=_TYPES.get(entry.config_type, ""),
        synonyms=tuple(
            ConfigSynonym(synonym.name, synonym.value, _SOURCES.get(synonym.source, "unknown"))
            for synonym in entry.synonyms
        ),
        documentation=entry.documentation or None,
    )


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
    configs = [(key, _DELETE if value is None else _SET, value) for key, value in changes.items()]
    return _alter_incrementally(sender, resource, configs, validate_only=validate_only)


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
    configs = [(key, _APPEND, value) for key, value in (append or {}).items()]
    configs += [(key, _SUBTRACT, value) for key, value in (subtract or {}).items()]
    return _alter_incrementally(sender, resource, configs)


def _alter_incrementally(
    sender: AdminSender,
    resource: ConfigResource,
    configs: Sequence[tuple[str, int, str | None]],
    *,
    validate_only: bool = False,
) -> Plan[None]:
    """Send one incremental change from tuples (key, operation, value) (KIP-339)."""
    altered = AlterConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in configs
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[altered], validate_only=validate_only)
    return _send(sender, resource, request)


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
    replaced = ReplacedResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configs=[ReplacedConfig(name=key, value=value) for key, value in values.items()],
    )
    request = AlterConfigsRequest(resources=[replaced], validate_only=validate_only)
    return _send(sender, resource, request)


def _send(sender: AdminSender, resource: ConfigResource, request: Message) -> Plan[None]:
    """Send a change of one resource to its broker, or to the controller.

    Raises:
        BrokerError: the change was refused.
    """

    def read(response: AlterConfigsResponse | IncrementalAlterConfigsResponse) -> bool:
        for result in response.responses:
            raise_error(result.error_code, f"configs of {resource}", result.error_message)
        return True

    node = resource.node_id
    if node is not None:
        yield from require_broker(sender, node)
    yield from sender.send(CONTROLLER if node is None else node, fixed_call(request, read))


def list_config_resources(
    sender: AdminSender, types: Sequence[ResourceType] = ()
) -> Plan[list[ConfigResource]]:
    """List resources of these types that have configs; no types means all types."""

    def build(version: int) -> Message:
        # Version 0 (KIP-1000) lists client metrics only.
        if version == 0:
            return ListConfigResourcesRequest()
        return ListConfigResourcesRequest(resource_types=[int(each) for each in types])

    def read(response: ListConfigResourcesResponse) -> list[ConfigResource]:
        raise_error(response.error_code, "list of config resources")
        known = {int(each) for each in ResourceType}
        return [
            ConfigResource(ResourceType(each.resource_type), each.resource_name)
            for each in response.config_resources
            if each.resource_type in known
        ]

    call = AdminCall(ApiKey.LIST_CONFIG_RESOURCES, build, read)
    return sender.send(ANY_NODE, call)


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
    request = DescribeClientQuotasRequest(
        components=[_component(kind, name) for kind, name in components.items()], strict=strict
    )

    def read(response: DescribeClientQuotasResponse) -> dict[QuotaEntity, dict[str, float]]:
        raise_error(response.error_code, "quotas", response.error_message)
        return {
            tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries or []
        }

    return sender.send(ANY_NODE, fixed_call(request, read))


def _component(kind: str, name: str | None) -> ComponentData:
    if name == ANY_NAME:
        return ComponentData(entity_type=kind, match_type=_ANY, match=None)
    match_type = _DEFAULT if name is None else _EXACT
    return ComponentData(entity_type=kind, match_type=match_type, match=name)


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
    ops = [
        OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()
    ]
    parts = [EntityDataRequest(entity_type=kind, entity_name=name) for kind, name in entity]
    entry = EntryDataRequest(entity=parts, ops=ops)
    request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)

    def read(response: AlterClientQuotasResponse) -> bool:
        for entry in response.entries:
            raise_error(entry.error_code, "quotas", entry.error_message)
        return True

    yield from sender.send(CONTROLLER, fixed_call(request, read))
