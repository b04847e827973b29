"""Dynamic configs and client quotas in the image.

Topics, brokers and other resources have configs (KIP-226, KIP-339). An entity of quotas (KIP-546,
KIP-612) is a user, a client id, both, or an IP address. The name None means the default entity of
its type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from barnabas.metadata.persistent_map import PersistentMap
from barnabas.protocol.records.security import ClientQuotaRecord, EntityData

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


V = TypeVar("V", str, float)

# Kafka's numbers of the config resource types.
TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

# Resource name of the configs that apply to every broker.
ALL_BROKERS = ""

_NONE: Mapping[str, str] = {}
_NO_RESOURCES: Mapping[str, Mapping[str, str]] = {}

# (resource type, resource name) -> {key: new value; None removes the key}
ConfigChanges = dict[tuple[int, str], dict[str, str | None]]


class ConfigsImage:
    """Configs by resource. Resources without configs are omitted."""

    __slots__ = ("_by_type",)

    def __init__(self) -> None:
        self._by_type: dict[int, PersistentMap[str, Mapping[str, str]]] = {}

    def get(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return the configs of a resource; empty if it has none.

        Callers must not change the result.
        """
        resources = self._by_type.get(resource_type)
        return _NONE if resources is None else (resources.get(name) or _NONE)

    def of_type(self, resource_type: int) -> Mapping[str, Mapping[str, str]]:
        """Return the configs of all resources of a type, by name. Callers must not change them."""
        return self._by_type.get(resource_type, _NO_RESOURCES)

    def __iter__(self) -> Iterator[tuple[int, str, Mapping[str, str]]]:
        for resource_type in sorted(self._by_type):
            for name, configs in self._by_type[resource_type].items():
                yield resource_type, name, configs

    def evolve(self, changes: ConfigChanges) -> ConfigsImage:
        """Return these configs with `changes` applied; the value None removes a key."""
        if not changes:
            return self
        image = ConfigsImage()
        image._by_type = dict(self._by_type)
        for resource_type in sorted({kind for kind, _ in changes}):
            merged: dict[str, Mapping[str, str] | None] = {
                name: merge_configs(self.get(kind, name), values) or None
                for (kind, name), values in changes.items()
                if kind == resource_type
            }
            before = image._by_type.get(resource_type) or PersistentMap()
            image._by_type[resource_type] = before.with_changes(merged)
        return image


def merge_configs(configs: Mapping[str, V], changes: Mapping[str, V | None]) -> dict[str, V]:
    """Return `configs` with `changes` applied; the value None removes a key."""
    merged = dict(configs)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

# (entity type, name) pairs sorted by type; the name is None for the default entity of the type.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
# entity -> {key: new value; None removes the key}
QuotaChanges: TypeAlias = dict[QuotaEntity, dict[str, float | None]]

_NO_QUOTAS: Mapping[str, float] = {}


class ClientQuotasImage:
    """Quotas by entity. Entities without quotas are omitted."""

    __slots__ = ("_by_entity",)

    def __init__(self, by_entity: Mapping[QuotaEntity, Mapping[str, float]] | None = None) -> None:
        self._by_entity: Mapping[QuotaEntity, Mapping[str, float]] = by_entity or {}

    def get(self, entity: QuotaEntity) -> Mapping[str, float]:
        """Return the quotas of an entity; empty if it has none.

        Callers must not change the result.
        """
        return self._by_entity.get(entity, _NO_QUOTAS)

    def __len__(self) -> int:
        return len(self._by_entity)

    def __iter__(self) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        return iter(self._by_entity.items())

    def evolve(self, changes: QuotaChanges) -> ClientQuotasImage:
        """Return these quotas with `changes` applied; the value None removes a key."""
        if not changes:
            return self
        by_entity = dict(self._by_entity)
        for entity, values in changes.items():
            merged = merge_configs(by_entity.get(entity, _NO_QUOTAS), values)
            if merged:
                by_entity[entity] = merged
            else:
                by_entity.pop(entity, None)
        return ClientQuotasImage(by_entity)

    def to_records(self) -> Iterator[tuple[ClientQuotaRecord, int]]:
        """Yield the records that create these quotas, each with its version."""
        for entity in sorted(self._by_entity, key=_sort_key):
            for key, value in sorted(self._by_entity[entity].items()):
                yield quota_record(entity, key, value), 0


def entity_of(parts: list[Any]) -> QuotaEntity:
    """Return the entity that a record or a request describes."""
    # The dictionary keeps one entry per type, so sorting never compares names, which may be None.
    return tuple(sorted({each.entity_type: each.entity_name for each in parts}.items()))


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """Return the record that sets a quota, or removes it (None)."""
    return ClientQuotaRecord(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=0.0 if value is None else value,
        remove=value is None,
    )


def _sort_key(entity: QuotaEntity) -> list[tuple[str, bool, str]]:
    return [(kind, name is not None, name or "") for kind, name in entity]
