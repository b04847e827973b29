"""Changing client quotas (AlterClientQuotas API 49; KIP-546, KIP-612).

The changes of an entity are applied together or refused together. If a request names an entity
twice, the first entry is applied and the response reports an error, as in Kafka.
"""

from __future__ import annotations

import ipaddress
import math
from typing import TYPE_CHECKING

from barnabas.controller.result import ControllerResult, Refusal
from barnabas.metadata.configs_image import CLIENT_ID, IP, USER, entity_of, quota_record
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityDataResponse,
    EntryDataResponse,
)
from barnabas.settings.key import ConfigType
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.configs_image import QuotaEntity
    from barnabas.metadata.image import ClusterImage
    from barnabas.protocol.messages.configs import EntryDataRequest


USER_AND_CLIENT_KEYS: Mapping[str, ConfigType] = {
    "producer_byte_rate": ConfigType.LONG,
    "consumer_byte_rate": ConfigType.LONG,
    "request_percentage": ConfigType.DOUBLE,
    "controller_mutation_rate": ConfigType.DOUBLE,
}
IP_KEYS: Mapping[str, ConfigType] = {"connection_creation_rate": ConfigType.INT}

_LARGEST = {ConfigType.INT: 0x7FFF_FFFF, ConfigType.LONG: 0x7FFF_FFFF_FFFF_FFFF}
_FRACTION_MAX = 1e-6


def alter_client_quotas(
    view: ControllerView, request: AlterClientQuotasRequest
) -> Generator[None, None, ControllerResult[AlterClientQuotasResponse]]:
    """Set and remove quotas, or only validate the request; yields before each entity."""
    records: list[VersionedRecord] = []
    results: dict[QuotaEntity, Refusal | None] = {}
    for entry in request.entries:
        yield
        entity = entity_of(entry.entity)
        try:
            if entity in results:
                raise _invalid(f"{_describe(entity)} is named more than once")
            records += _changes(view.image, entity, entry)
            results[entity] = None
        except Refusal as refusal:
            # Without the traceback, because its frame refers to this dictionary.
            results[entity] = refusal.with_traceback(None)
    if request.validate_only:
        records = []
    entries = yield from gradually(_result(entity, refusal) for entity, refusal in results.items())
    return ControllerResult(records, AlterClientQuotasResponse(entries=entries))


def _changes(
    image: ClusterImage, entity: QuotaEntity, entry: EntryDataRequest
) -> list[VersionedRecord]:
    wanted: dict[str, float | None] = {}
    for op in entry.ops:
        if op.key in wanted:
            raise _invalid(f"{op.key} is given more than once for {_describe(entity)}")
        wanted[op.key] = None if op.remove else op.value
    keys = _keys_of(entity)
    current = image.client_quotas.get(entity)
    records: list[VersionedRecord] = []
    for key, value in wanted.items():
        if value is not None:
            _check_value(keys, key, value)
        if value != current.get(key):
            records.append((quota_record(entity, key, value), 0))
    return records


def _keys_of(entity: QuotaEntity) -> Mapping[str, ConfigType]:
    """Return the keys that are valid for an entity; raises Refusal for an invalid entity."""
    if not entity:
        raise _invalid("an entity must have a user, a client id or an address")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(
                f"{kind} is not a type of quota entity; the types are user, client-id and ip"
            )
        if name == "":
            raise _invalid(f"the name of a {kind} cannot be empty")
    by_type = dict(entity)
    if IP not in by_type:
        return USER_AND_CLIENT_KEYS
    if len(by_type) > 1:
        raise _invalid("ip cannot be combined with user or client-id")
    address = by_type[IP]
    if address is not None and not _is_address(address):
        raise _invalid(f"{address} is not an IP address")
    return IP_KEYS


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(keys: Mapping[str, ConfigType], key: str, value: float) -> None:
    kind = keys.get(key)
    if kind is None:
        raise _invalid(f"{key} is not a quota of such an entity; allowed: {', '.join(keys)}")
    if not math.isfinite(value):
        raise _invalid(f"{key} must be a finite number")
    if value <= 0:
        raise _invalid(f"{key} must be greater than 0")
    if kind is ConfigType.DOUBLE:
        return
    if value > _LARGEST[kind]:
        raise _invalid(f"{key} must be at most {_LARGEST[kind]}")
    if math.fmod(value, 1.0) > _FRACTION_MAX:
        raise _invalid(f"{key} must be an integer")


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _describe(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {name or '(default)'}" for kind, name in entity) or "no entity"


def _result(entity: QuotaEntity, refusal: Refusal | None) -> EntryDataResponse:
    return EntryDataResponse(
        error_code=ErrorCode.NONE if refusal is None else refusal.error_code,
        error_message=None if refusal is None else refusal.message,
        entity=[EntityDataResponse(entity_type=kind, entity_name=name) for kind, name in entity],
    )


def refuse_alter_client_quotas(
    request: AlterClientQuotasRequest, error: Refusal
) -> Generator[None, None, AlterClientQuotasResponse]:
    """Make the error response for all entities of a request, as they are in the request."""
    entries = yield from gradually(
        EntryDataResponse(
            error_code=error.error_code,
            error_message=error.message,
            entity=[
                EntityDataResponse(entity_type=each.entity_type, entity_name=each.entity_name)
                for each in entry.entity
            ],
        )
        for entry in request.entries
    )
    return AlterClientQuotasResponse(entries=entries)
