"""The API table: versions, listeners, classes."""

from __future__ import annotations

import pytest

from barnabas.protocol.api_keys import (
    ApiKey,
    api_row,
    is_flexible_version,
    last_stable_version,
    listeners,
    request_class,
    response_class,
    schema_versions,
)
from barnabas.protocol.api_table import APIS_WITHOUT_TABLES
from barnabas.protocol.errors import ProtocolError


def test_every_api_has_a_request_and_a_response_of_the_same_versions() -> None:
    assert [int(key) for key in ApiKey] == list(range(95))
    for key in set(ApiKey) - APIS_WITHOUT_TABLES:
        request, response = request_class(key), response_class(key)
        assert request.__api_key__ == response.__api_key__ == key
        assert request.__versions__ == response.__versions__ == schema_versions(key)
        first, last = schema_versions(key)
        for version in range(first, last + 1):
            flexible = version >= request.__flexible_from__
            assert is_flexible_version(key, version) is flexible
            assert (version >= response.__flexible_from__) is flexible


def test_versions_that_kafka_4_removed_are_supported() -> None:
    assert schema_versions(ApiKey.PRODUCE) == (0, 13)
    assert schema_versions(ApiKey.FETCH) == (0, 18)
    assert schema_versions(ApiKey.LIST_OFFSETS) == (0, 11)
    assert schema_versions(ApiKey.OFFSET_COMMIT) == (0, 10)
    assert schema_versions(ApiKey.CREATE_TOPICS) == (0, 7)
    assert schema_versions(ApiKey.LEADER_AND_ISR) == (0, 7)


def test_early_access_versions_that_kafka_4_removed_are_not_supported() -> None:
    assert schema_versions(ApiKey.SHARE_FETCH) == (1, 2)


def test_the_last_stable_version_excludes_unstable_versions() -> None:
    assert last_stable_version(ApiKey.INIT_PRODUCER_ID) == 5
    assert last_stable_version(ApiKey.PRODUCE) == 13


def test_an_api_has_the_kinds_of_its_listeners() -> None:
    assert listeners(ApiKey.PRODUCE) == ("broker",)
    assert listeners(ApiKey.VOTE) == ("controller",)
    assert listeners(ApiKey.LEADER_AND_ISR) == ()


def test_an_unknown_key_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="95"):
        api_row(95)
