"""Dynamic configs of topics, brokers and other resources in the image (KIP-226, KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.persistent_map import PersistentMap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Kafka's numbers of the config resource types.
TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

# Resource name of the configs that apply to every broker.
ALL_BROKERS = ""

_NONE: Mapping[str, str] = {}

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

    def __iter__(self) -> Iterator[tuple[int, str, Mapping[str, str]]]:
        for resource_type in sorted(self._by_type):
            for name, configs in self._by_type[resource_type].items():
                yield resource_type, name, configs

    def evolve(self, changes: ConfigChanges) -> ConfigsImage:
        """Return these configs with `changes` applied; the value None removes a key."""
        made = ConfigsImage()
        made._by_type = dict(self._by_type)
        for resource_type in sorted({kind for kind, _ in changes}):
            put: dict[str, Mapping[str, str]] = {}
            removed: list[str] = []
            for (kind, name), values in changes.items():
                if kind != resource_type:
                    continue
                merged = merge_configs(self.get(kind, name), values)
                if merged:
                    put[name] = merged
                else:
                    removed.append(name)
            before = made._by_type.get(resource_type) or PersistentMap()
            made._by_type[resource_type] = before.evolve(put, removed)
        return made


def merge_configs(configs: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return `configs` with `changes` applied; the value None removes a key."""
    merged = dict(configs)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged
