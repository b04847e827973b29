"""Client quotas in the image (KIP-546, KIP-612).

An entity is a user, a client id, both, or an IP address. The name None means the default entity of
its type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.protocol.records.client_quota_record import ClientQuotaRecord, EntityData

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

# (entity type, name) pairs sorted by type; the name is None for the default entity of the type.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
# entity -> {key: new value; None removes the key}
QuotaChanges: TypeAlias = dict[QuotaEntity, dict[str, float | None]]

_NONE: Mapping[str, float] = {}


class ClientQuotasImage:
    """Quotas by entity. Entities without quotas are omitted."""

    __slots__ = ("_by_entity",)

    def __init__(self, by_entity: Mapping[QuotaEntity, Mapping[str, float]] | None = None) -> None:
        self._by_entity: Mapping[QuotaEntity, Mapping[str, float]] = by_entity or {}

    def get(self, entity: QuotaEntity) -> Mapping[str, float]:
        """Return the quotas of an entity; empty if it has none.

        Callers must not change the result.
        """
        return self._by_entity.get(entity, _NONE)

    def __len__(self) -> int:
        return len(self._by_entity)

    def __iter__(self) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        return iter(self._by_entity.items())

    def evolve(self, changes: QuotaChanges) -> ClientQuotasImage:
        """Return these quotas with `changes` applied; the value None removes a key."""
        made = dict(self._by_entity)
        for entity, values in changes.items():
            merged = dict(made.get(entity, _NONE))
            for key, value in values.items():
                if value is None:
                    merged.pop(key, None)
                else:
                    merged[key] = value
            if merged:
                made[entity] = merged
            else:
                made.pop(entity, None)
        return ClientQuotasImage(made)

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
