"""Validation of client quotas, and changes of them."""

from __future__ import annotations

import math

import pytest

from barnabas.controller.client_quotas import alter_client_quotas
from barnabas.metadata.image import ClusterImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityDataRequest,
    EntryDataRequest,
    OpData,
)
from steps import finish
from unit.controller.parts import applied, view_of

Entity = dict[str, str | None]


def entry(entity: Entity, **values: float | None) -> EntryDataRequest:
    return EntryDataRequest(
        entity=[
            EntityDataRequest(entity_type=kind.replace("_", "-"), entity_name=name)
            for kind, name in entity.items()
        ],
        ops=[
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in values.items()
        ],
    )


def alter(
    image: ClusterImage, *entries: EntryDataRequest, validate_only: bool = False
) -> tuple[ClusterImage, AlterClientQuotasResponse]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    result = finish(alter_client_quotas(view_of(image), request))
    return applied(image, result.records), result.response


def quotas(image: ClusterImage) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    return {entity: dict(values) for entity, values in image.client_quotas}


def refusal_of(one: EntryDataRequest) -> ErrorCode:
    image, response = alter(ClusterImage(), one)
    assert not quotas(image)
    assert response.entries[0].error_message
    return ErrorCode(response.entries[0].error_code)


def test_limits_are_set_changed_and_removed() -> None:
    image, _ = alter(
        ClusterImage(),
        entry({"user": "u", "client_id": None}, producer_byte_rate=1000, consumer_byte_rate=5),
    )
    entity = (("client-id", None), ("user", "u"))
    assert quotas(image) == {entity: {"producer_byte_rate": 1000.0, "consumer_byte_rate": 5.0}}
    image, _ = alter(
        image,
        entry({"client_id": None, "user": "u"}, producer_byte_rate=7, consumer_byte_rate=None),
    )
    assert quotas(image) == {entity: {"producer_byte_rate": 7.0}}
    image, _ = alter(
        image, entry({"user": "u", "client_id": None}, producer_byte_rate=None, unknown=None)
    )
    assert not quotas(image)


def test_an_unchanged_quota_writes_no_record() -> None:
    image, _ = alter(ClusterImage(), entry({"ip": None}, connection_creation_rate=3))
    request = AlterClientQuotasRequest(
        entries=[entry({"ip": None}, connection_creation_rate=3)], validate_only=False
    )
    assert not finish(alter_client_quotas(view_of(image), request)).records


def test_validate_only_changes_nothing() -> None:
    image, response = alter(
        ClusterImage(), entry({"user": "u"}, request_percentage=12.5), validate_only=True
    )
    assert response.entries[0].error_code == ErrorCode.NONE
    assert not quotas(image)


@pytest.mark.parametrize(
    "refused",
    [
        entry({}, producer_byte_rate=1),
        entry({"group": "g"}, producer_byte_rate=1),
        entry({"user": ""}, producer_byte_rate=1),
        entry({"ip": "127.0.0.1", "user": "u"}, connection_creation_rate=1),
        entry({"ip": "not an address"}, connection_creation_rate=1),
        entry({"ip": "127.0.0.1"}, producer_byte_rate=1),
        entry({"user": "u"}, connection_creation_rate=1),
        entry({"user": "u"}, unknown=1),
        entry({"user": "u"}, producer_byte_rate=0),
        entry({"user": "u"}, producer_byte_rate=-1),
        entry({"user": "u"}, producer_byte_rate=1.5),
        entry({"user": "u"}, producer_byte_rate=1e300),
        entry({"user": "u"}, request_percentage=math.inf),
        entry({"user": "u"}, request_percentage=math.nan),
        entry({"ip": "127.0.0.1"}, connection_creation_rate=3e9),
    ],
)
def test_a_meaningless_alteration_is_an_invalid_request(refused: EntryDataRequest) -> None:
    assert refusal_of(refused) == ErrorCode.INVALID_REQUEST


def test_changes_of_an_entity_are_atomic() -> None:
    image, response = alter(
        ClusterImage(),
        entry({"user": "a"}, producer_byte_rate=1, unknown=1),
        entry({"user": "b"}, producer_byte_rate=1),
    )
    assert list(quotas(image)) == [(("user", "b"),)]
    assert [each.error_code for each in response.entries] == [ErrorCode.INVALID_REQUEST, 0]


def test_a_duplicate_entity_gets_one_error() -> None:
    image, response = alter(
        ClusterImage(),
        entry({"user": "u"}, producer_byte_rate=1),
        entry({"user": "u"}, producer_byte_rate=2),
    )
    assert [each.error_code for each in response.entries] == [ErrorCode.INVALID_REQUEST]
    assert quotas(image) == {(("user", "u"),): {"producer_byte_rate": 1.0}}
