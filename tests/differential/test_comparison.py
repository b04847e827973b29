"""The comparison itself: it sees what differs, and nothing passes because it was not looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.headers import encode_response
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.schema import Array, Struct
from barnabas.server.handlers.table import SERVED_APIS
from differential.all_cases import CASES
from differential.answer import ReencodingError, differences, flatten, read_answer
from differential.case import Case
from differential.known_differences import KNOWN_DIFFERENCES
from differential.scene import Pair, Scene, batch, produce

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


def test_every_field_of_an_answer_that_is_changed_is_seen(pair: Pair) -> None:
    scene = Scene(pair, ApiKey.PRODUCE, "self-check", 12)
    topic = scene.topic()
    answer, _ = scene.do(ApiKey.PRODUCE, 12, produce(topic, batch(b"a")))
    side = pair.kafka
    before = flatten(answer, 12, side)
    seen = 0
    for struct, each in list(fields_of(answer, 12)):
        value = getattr(struct, each.name)
        if each.name in ("current_leader", "record_errors", "node_endpoints"):
            continue
        if type(struct).__setattr__ is not object.__setattr__:
            continue
        setattr(struct, each.name, changed(value))
        found = differences(before, flatten(answer, 12, side))
        setattr(struct, each.name, value)
        if each.name == "error_message":
            assert not found or list(found.values()) == [(None, "")]
            continue
        assert any(each.name in path or "not there" in pair for path, pair in found.items()), each
        seen += 1
    assert seen >= 6
    assert not differences(before, flatten(answer, 12, side))


def test_a_case_that_differs_fails_and_an_expected_difference_that_is_gone_fails(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(scene: Scene) -> None:
        scene.note({"a": 1}, {"a": 2})

    case = Case(ApiKey.HEARTBEAT, "self-check", play, frozenset({4}))
    assert case.run(pair) == ["v4 answer 1 a: Kafka 1, Barnabas 2"]
    monkeypatch.setitem(KNOWN_DIFFERENCES, str(case), {"answer 1 a": "for this test"})
    assert case.run(pair) == []
    gone = {"answer 1 a": "for this test", "answer 9 *": "gone"}
    monkeypatch.setitem(KNOWN_DIFFERENCES, str(case), gone)
    assert case.run(pair) == ["no longer differs: answer 9 *"]


def test_an_answer_that_we_would_write_otherwise_is_not_accepted() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    frame = b"".join(bytes(chunk) for chunk in encode_response(1, response, 3))[4:]
    assert read_answer(ApiKey.API_VERSIONS, 3, frame) == response
    with pytest.raises(ReencodingError):
        read_answer(ApiKey.API_VERSIONS, 3, frame + b"\0")


def test_every_api_that_both_serve_has_a_case(pair: Pair) -> None:
    covered = {each.api for each in CASES if each.name != "a-body-cut-short"}
    missing = {ApiKey(key) for key in SERVED_APIS if pair.versions(ApiKey(key))} - covered
    assert not missing


def test_the_table_of_known_differences_names_cases_that_there_are() -> None:
    assert KNOWN_DIFFERENCES.keys() <= {str(each) for each in CASES}
