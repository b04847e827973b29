"""DescribeClientQuotas (key 48, v0-1): list quotas that match an entity filter (KIP-546).

Entities and keys have the order of Kafka's hash tables, on which tests of clients depend. After a
removal, Kafka's own order also depends on the earlier size of its table; that is not reproduced.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from barnabas.metadata.configs_image import CLIENT_ID, IP, USER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.java_collections import JavaTable, string_hash
from barnabas.protocol.messages.configs import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from barnabas.metadata.configs_image import QuotaEntity
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.dispatch.request import Handle, RequestContext


# Kafka's tables of quotas are created for no keys.
_FIRST_CAPACITY = 1


class MatchType(IntEnum):
    """The ways in which a filter matches the name of an entity type, with Kafka's numbers."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


# Wanted name by entity type. None matches the default entity, ANY matches every name.
Filter = dict[str, "str | MatchType | None"]


class _FilterError(Exception):
    """The filter of the request is invalid."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


def describe_client_quotas(cluster: ClusterView) -> Handle:
    """Return the handler that lists client quotas."""

    def handle_describe_client_quotas(
        context: RequestContext,
        request: DescribeClientQuotasRequest,
    ) -> DescribeClientQuotasResponse | None:
        """List matching quotas. An empty filter matches all, or nothing if the match is strict."""
        try:
            name_filter = _parse_filter(request)
        except _FilterError as error:
            return DescribeClientQuotasResponse(
                error_code=error.error_code, error_message=str(error), entries=None
            )
        return context.in_slices(build_response(name_filter, strict=request.strict))

    def build_response(
        name_filter: Filter, *, strict: bool
    ) -> Generator[None, None, DescribeClientQuotasResponse]:
        quotas = cluster.image.client_quotas
        matching: JavaTable[QuotaEntity] = JavaTable(_entity_hash, capacity=_FIRST_CAPACITY)
        for entity, _ in quotas:
            matching.add(entity)
            yield
        entries: list[EntryData] = []
        for entity in matching:
            if _matches(name_filter, strict, entity):
                entries.append(_entry(entity, quotas.get(entity)))
            yield
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.NONE, error_message="", entries=entries
        )

    return handle_describe_client_quotas


def _entry(entity: QuotaEntity, limits: Mapping[str, float]) -> EntryData:
    keys = JavaTable(string_hash, limits, _FIRST_CAPACITY)
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[ValueData(key=key, value=limits[key]) for key in keys],
    )


def _entity_hash(entity: QuotaEntity) -> int:
    """Return the hash code of Kafka's ClientQuotaEntity as an unsigned number."""
    parts = (
        string_hash(kind) ^ (0 if name is None else string_hash(name)) for kind, name in entity
    )
    return (31 + sum(parts)) & 0xFFFF_FFFF


def _parse_filter(request: DescribeClientQuotasRequest) -> Filter:
    name_filter: Filter = {}
    invalid = ErrorCode.INVALID_REQUEST
    for component in request.components:
        kind, match = component.entity_type, component.match
        if not kind:
            raise _FilterError(invalid, "an entity type is empty")
        if kind in name_filter:
            raise _FilterError(invalid, f"entity type {kind} is named more than once")
        if kind not in (USER, CLIENT_ID, IP):
            raise _FilterError(
                ErrorCode.UNSUPPORTED_VERSION, f"entity type {kind} is not supported"
            )
        if component.match_type not in tuple(MatchType):
            raise _FilterError(invalid, f"match type {component.match_type} is unknown")
        if (component.match_type == MatchType.EXACT) != (match is not None):
            raise _FilterError(invalid, "a name belongs to an exact match, and to no other")
        name_filter[kind] = MatchType.ANY if component.match_type == MatchType.ANY else match
    if IP in name_filter and len(name_filter) > 1:
        raise _FilterError(invalid, "ip cannot be combined with user or client-id")
    return name_filter


def _matches(name_filter: Filter, strict: bool, entity: QuotaEntity) -> bool:
    if strict and (not name_filter or len(name_filter) != len(entity)):
        return False
    by_type = dict(entity)
    return all(
        kind in by_type and (name is MatchType.ANY or by_type[kind] == name)
        for kind, name in name_filter.items()
    )
