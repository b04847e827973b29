"""Requests with several things wrong at once, drawn from a fixed seed: no answer differs.

`make mutations` is the long form. These come before the other tests of this folder, while answers
that list all there is are short.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from differential.matrix.valid import VALID
from differential.mutations import rounds

if TYPE_CHECKING:
    from barnabas.protocol.api_table import ApiKey
    from differential.scene import Pair

pytestmark = pytest.mark.conformance

SEED = "suite"
ROUNDS = 3


@pytest.mark.parametrize("api", VALID, ids=lambda api: api.name.lower())
def test_mutated_requests_are_answered_the_same(api: ApiKey, pair: Pair) -> None:
    played = list(itertools.islice(rounds(pair, SEED, [api]), ROUNDS))
    assert sum(each.sent for each in played) > 0
    found = [str(each) for played_round in played for each in played_round.found]
    assert not found, "\n" + "\n".join(found)
