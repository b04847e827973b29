"""Configs of topics, brokers, groups, loggers and client metrics, and client quotas.

Sources: KIP-226, KIP-339, KIP-1142 (configs), KIP-546 (quotas for producing, fetching and request
time).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.errors import ClientError, broker_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_configs import (
    AlterableConfig as ReplacedConfig,
    AlterConfigsRequest,
    AlterConfigsResource as ReplacedResource,
    AlterConfigsResourceResponse as ReplacedResourceResponse,
    AlterConfigsResponse,
)
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
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
    from collections.abc import Iterable, Mapping, Sequence

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
    resources: Sequence[ConfigResource],
    *,
    keys: Sequence[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> AdminCall[dict[ConfigResource, list[ConfigEntry] | ClientError]]:
    """Describe configs of resources; an error for a resource that cannot be described."""

    def build(version: int) -> Message:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configuration_keys=None if keys is None else list(keys),
                )
                for resource in resources
            ],
            include_synonyms=synonyms,
        )
        if version >= 3:
            request.include_documentation = documentation
        return request

    def read(response: Message) -> dict[ConfigResource, list[ConfigEntry] | ClientError]:
        assert isinstance(response, DescribeConfigsResponse)
        found: dict[ConfigResource, list[ConfigEntry] | ClientError] = {}
        for result in response.results:
            resource = ConfigResource(ResourceType(result.resource_type), result.resource_name)
            if result.error_code:
                subject = f"configs of {resource}"
                found[resource] = broker_error(result.error_code, subject, result.error_message)
            else:
                found[resource] = [_entry(entry) for entry in result.configs]
        return found

    return AdminCall(ApiKey.DESCRIBE_CONFIGS, build, read)


def _entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        entry.name,
        entry.value,
        _SOURCES.get(entry.config_source, "unknown"),
        entry.config_source == _DEFAULT_SOURCE,
        entry.read_only,
        entry.is_sensitive,
        _TYPES.get(entry.config_type, ""),
        tuple(
            ConfigSynonym(synonym.name, synonym.value, _SOURCES.get(synonym.source, "unknown"))
            for synonym in entry.synonyms
        ),
        entry.documentation or None,
    )


def alter_configs(
    resource: ConfigResource, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> AdminCall[bool]:
    """Set configs of one resource; a value of None resets the config to its default."""
    configs = [(key, _DELETE if value is None else _SET, value) for key, value in changes.items()]
    return _altering(resource, configs, validate_only=validate_only)


def change_config_list(
    resource: ConfigResource, append: Mapping[str, str], subtract: Mapping[str, str]
) -> AdminCall[bool]:
    """Add values to configs that are lists, and remove others; values are comma-separated."""
    configs = [(key, _APPEND, value) for key, value in append.items()]
    configs += [(key, _SUBTRACT, value) for key, value in subtract.items()]
    return _altering(resource, configs, validate_only=False)


def _altering(
    resource: ConfigResource,
    configs: Sequence[tuple[str, int, str | None]],
    *,
    validate_only: bool,
) -> AdminCall[bool]:
    """Build one incremental change from tuples (key, operation, value) (KIP-339)."""

    def build(_version: int) -> Message:
        altered = AlterConfigsResource(
            resource_type=resource.type,
            resource_name=resource.name,
            configs=[
                AlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in configs
            ],
        )
        return IncrementalAlterConfigsRequest(resources=[altered], validate_only=validate_only)

    def read(response: Message) -> bool:
        assert isinstance(response, IncrementalAlterConfigsResponse)
        return _none_refused(resource, response.responses)

    return AdminCall(ApiKey.INCREMENTAL_ALTER_CONFIGS, build, read)


def replace_configs(
    resource: ConfigResource, values: Mapping[str, str], *, validate_only: bool = False
) -> AdminCall[bool]:
    """Replace all configs of one resource; other configs return to their defaults."""

    def build(_version: int) -> Message:
        replaced = ReplacedResource(
            resource_type=resource.type,
            resource_name=resource.name,
            configs=[ReplacedConfig(name=key, value=value) for key, value in values.items()],
        )
        return AlterConfigsRequest(resources=[replaced], validate_only=validate_only)

    def read(response: Message) -> bool:
        assert isinstance(response, AlterConfigsResponse)
        return _none_refused(resource, response.responses)

    return AdminCall(ApiKey.ALTER_CONFIGS, build, read)


def _none_refused(
    resource: ConfigResource,
    responses: Iterable[AlterConfigsResourceResponse | ReplacedResourceResponse],
) -> bool:
    """Check that no change was refused; return True.

    Raises:
        BrokerError: a change was refused.
    """
    for response in responses:
        raise_error(response.error_code, f"configs of {resource}", response.error_message)
    return True


def list_config_resources(types: Sequence[ResourceType]) -> AdminCall[list[ConfigResource]]:
    """List the resources of these types that have configs; no types means all types."""

    def build(version: int) -> Message:
        # Version 0 (KIP-1000) lists client metrics only.
        if version == 0:
            return ListConfigResourcesRequest()
        return ListConfigResourcesRequest(resource_types=[int(each) for each in types])

    def read(response: Message) -> list[ConfigResource]:
        assert isinstance(response, ListConfigResourcesResponse)
        raise_error(response.error_code, "list of config resources")
        known = {int(each) for each in ResourceType}
        return [
            ConfigResource(ResourceType(each.resource_type), each.resource_name)
            for each in response.config_resources
            if each.resource_type in known
        ]

    return AdminCall(ApiKey.LIST_CONFIG_RESOURCES, build, read)


def describe_quotas(
    components: Mapping[str, str | None], *, strict: bool = False
) -> AdminCall[dict[QuotaEntity, dict[str, float]]]:
    """Describe quotas of entities that match all components; ANY_NAME matches any name."""

    def build(_version: int) -> Message:
        return DescribeClientQuotasRequest(
            components=[_component(kind, name) for kind, name in components.items()],
            strict=strict,
        )

    def read(response: Message) -> dict[QuotaEntity, dict[str, float]]:
        assert isinstance(response, DescribeClientQuotasResponse)
        raise_error(response.error_code, "quotas", response.error_message)
        return {
            tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries or []
        }

    return AdminCall(ApiKey.DESCRIBE_CLIENT_QUOTAS, build, read)


def _component(kind: str, name: str | None) -> ComponentData:
    if name == ANY_NAME:
        return ComponentData(entity_type=kind, match_type=_ANY, match=None)
    match_type = _DEFAULT if name is None else _EXACT
    return ComponentData(entity_type=kind, match_type=match_type, match=name)


def alter_quotas(
    entity: QuotaEntity, changes: Mapping[str, float | None], *, validate_only: bool = False
) -> AdminCall[bool]:
    """Set quotas of one entity; a value of None removes the quota."""

    def build(_version: int) -> Message:
        ops = [
            OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ]
        parts = [EntityDataRequest(entity_type=kind, entity_name=name) for kind, name in entity]
        entry = EntryDataRequest(entity=parts, ops=ops)
        return AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)

    def read(response: Message) -> bool:
        assert isinstance(response, AlterClientQuotasResponse)
        for entry in response.entries:
            raise_error(entry.error_code, "quotas", entry.error_message)
        return True

    return AdminCall(ApiKey.ALTER_CLIENT_QUOTAS, build, read)
