"""The comparison detects all differences, and no case passes without a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.codec import encode_response
from barnabas.protocol.messages.connection import ApiVersionsResponse
from barnabas.protocol.schema import Array, Struct
from barnabas.server.dispatch.served_apis import SERVED_APIS
from differential import tiered_disable_cases
from differential.all_cases import CASES
from differential.case import Case
from differential.known_differences import KNOWN_DIFFERENCES
from differential.response import ReencodingError, differences, flatten, read_response
from differential.scene import Pair, Scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.protocol.schema import Field


def fields_of(struct: Struct, version: int) -> Iterator[tuple[Struct, Field]]:
    for each in struct.__fields__:
        if not each.is_in(version):
            continue
        value = getattr(struct, each.name)
        if isinstance(value, Struct):
            yield from fields_of(value, version)
        elif isinstance(each.kind, Array) and value and isinstance(value[0], Struct):
            for item in value:
                yield from fields_of(item, version)
        else:
            yield struct, each


def changed(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "x"
        case list():
            return [*value, value[0]] if value else [0]
        case None:
            return ""
        case _:
            return bytes(value) + b"x"


REQUESTS = {
    ApiKey.METADATA: (12, {"topics": [{"name": "__consumer_offsets"}]}),
    ApiKey.LIST_OFFSETS: (7, {"topics": [{"name": "TOPIC", "partitions": [{"timestamp": -1}]}]}),
    ApiKey.DESCRIBE_CONFIGS: (
        4,
        {
            "resources": [
                {"resource_type": 4, "resource_name": "1", "configuration_keys": ["num.partitions"]}
            ],
            "include_synonyms": True,
        },
    ),
    ApiKey.FIND_COORDINATOR: (4, {"coordinator_keys": ["a", "b"]}),
}
# By a rule, different cluster ids are equal.
NO_DIFFERENCE = {"cluster_id"}


@pytest.mark.parametrize("api", REQUESTS, ids=lambda api: api.name.lower())
def test_a_change_in_any_field_of_a_response_is_detected(pair: Pair, api: ApiKey) -> None:
    version, values = REQUESTS[api]
    response, _ = Scene(pair, api, "self-check", version).do(api, version, values)
    side = pair.kafka
    before = flatten(response, version, side)
    assert not differences(before, flatten(response, version, side))
    places = list(fields_of(response, version))
    assert len(places) > 4
    for struct, each in places:
        value = getattr(struct, each.name)
        setattr(struct, each.name, changed(value))
        found = differences(before, flatten(response, version, side))
        setattr(struct, each.name, value)
        assert bool(found) is (each.name not in NO_DIFFERENCE), each


def test_unexpected_and_missing_expected_differences_fail_a_case(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(scene: Scene) -> None:
        scene.note({"a": 1}, {"a": 2})

    case = Case(ApiKey.HEARTBEAT, "self-check", play, frozenset({4}))
    assert case.run(pair) == ["v4 response 1 a: Kafka 1, Barnabas 2"]
    monkeypatch.setitem(KNOWN_DIFFERENCES, str(case), {"response 1 a": "for this test"})
    assert case.run(pair) == []
    gone = {"response 1 a": "for this test", "response 9 *": "gone"}
    monkeypatch.setitem(KNOWN_DIFFERENCES, str(case), gone)
    assert case.run(pair) == ["no longer differs: response 9 *"]


def test_a_response_that_our_codec_encodes_differently_is_rejected() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    frame = b"".join(bytes(chunk) for chunk in encode_response(1, response, 3))[4:]
    assert read_response(ApiKey.API_VERSIONS, 3, frame) == response
    with pytest.raises(ReencodingError):
        read_response(ApiKey.API_VERSIONS, 3, frame + b"\0")


def test_every_api_that_both_serve_has_a_case(pair: Pair) -> None:
    covered = {each.api for each in CASES if each.name != "a-body-cut-short"}
    missing = {ApiKey(key) for key in SERVED_APIS if pair.versions(ApiKey(key))} - covered
    assert not missing


def test_the_table_of_known_differences_names_existing_cases() -> None:
    assert KNOWN_DIFFERENCES.keys() <= {str(each) for each in (*CASES, *tiered_disable_cases.CASES)}
