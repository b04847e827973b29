"""Client quotas: limits on producing, fetching and request time (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityDataRequest,
    EntryDataRequest,
    OpData,
)
from barnabas.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.schema import Message

__all__ = ["QuotaEntity", "alter_quotas", "describe_quotas"]

# Pairs (type, name), sorted by type: user, client-id or ip; a name of None is the default entity.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]

_EXACT = 0
_DEFAULT = 1
_ANY = 2
# Matches any name of a type.
ANY_NAME = "*"


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
