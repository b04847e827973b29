"""Requests with several random errors from a fixed seed get equal responses.

`make mutations` runs more requests. These tests run early in this folder, while responses that list
all objects are short.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.api_table import ApiKey
from differential import mutations
from differential.matrix.valid_requests import VALID
from differential.mutations import rounds
from selection import nightly_unless

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Pair

pytestmark = pytest.mark.conformance

SEED = "suite"
# More of them in `make nightly`, and all APIs instead of every third one.
ROUNDS, NIGHTLY_ROUNDS = 1, 3
CHECKED = list(VALID)[::3]


@pytest.mark.parametrize(
    "api", nightly_unless(CHECKED.__contains__, VALID), ids=lambda api: api.name.lower()
)
def test_mutated_requests_get_the_same_responses(
    api: ApiKey, pair: Pair, pytestconfig: pytest.Config
) -> None:
    count = NIGHTLY_ROUNDS if pytestconfig.option.nightly else ROUNDS
    played = list(itertools.islice(rounds(pair, SEED, [api]), count))
    assert sum(each.sent for each in played) > 0
    found = [str(each) for played_round in played for each in played_round.found]
    assert not found, "\n" + "\n".join(found)


def test_a_difference_is_reported_with_minimal_inputs(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = itertools.count()

    def spoiling(*_: object) -> Callable[[object], None]:
        return lambda response: setattr(response, "throttle_time_ms", next(times))

    monkeypatch.setattr(mutations, "without_other_cases", spoiling)
    found = next(rounds(pair, SEED, [ApiKey.DESCRIBE_CLUSTER])).found
    assert found
    # Every response differs, including the response to the unchanged request.
    assert {each.inputs for each in found} == {()}
    assert all("throttle_time_ms" in str(each) for each in found)


def test_a_difference_that_does_not_appear_again_is_no_failure(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses = itertools.count()

    def spoiling(*_: object) -> Callable[[object], None]:
        return lambda response: setattr(response, "throttle_time_ms", int(next(responses) == 0))

    monkeypatch.setattr(mutations, "without_other_cases", spoiling)
    before = len(pair.differed_once)
    assert not next(rounds(pair, SEED, [ApiKey.DESCRIBE_CLUSTER])).found
    (line,) = pair.differed_once[before:]
    assert "throttle_time_ms" in line
    del pair.differed_once[before:]
