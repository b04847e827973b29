"""docs/compatibility.md, which `make compatibility` generates, agrees with these comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.server.dispatch.served_apis import SERVED_APIS
from differential.cases.matrix import GENERATED, labels
from differential.document import api_rows, class_rows, excluded_inputs, written
from differential.matrix.excluded_inputs import NOT_SENT
from differential.matrix.inputs import CLASSES
from differential.matrix.valid_requests import VALID

if TYPE_CHECKING:
    from differential.scene import Pair

pytestmark = pytest.mark.conformance

STALE = "docs/compatibility.md is stale: make compatibility"
# Columns of manual cases. The document may contain smaller numbers, because cases are added often.
_BY_HAND = (5, 6)


@pytest.mark.nightly
def test_the_document_equals_the_compared_cases(pair: Pair) -> None:
    for each in GENERATED:
        # The case has not run yet, if only some tests were selected.
        if str(each) not in pair.complete:
            each.run(pair)
    there = written()
    missing = [line for line in [*class_rows(pair), *excluded_inputs()] if line not in there]
    assert not missing, STALE
    header, line, *rows = api_rows(pair)
    start = there.index(header)
    assert there[start + 1] == line, STALE
    for now, then in zip(rows, there[start + 2 : start + 2 + len(rows)], strict=True):
        for at, (one, other) in enumerate(zip(now.split("|"), then.split("|"), strict=True)):
            if at in _BY_HAND:
                assert int(other) <= int(one), STALE
            else:
                assert one == other, STALE


def test_every_served_api_has_a_valid_request() -> None:
    assert {int(each) for each in VALID} == set(SERVED_APIS)


def test_every_omitted_input_exists(pair: Pair) -> None:
    known = {api: labels(pair, api) for api in {api for api, _ in NOT_SENT}}
    for api, label in NOT_SENT:
        assert label.removeprefix("broker: ") in known[api], label


def test_every_class_of_inputs_applies_to_an_api(pair: Pair) -> None:
    rows = class_rows(pair)[2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(CLASSES)
    assert all(int(row.split(" | ")[1]) > 0 for row in rows)
