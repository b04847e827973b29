"""Random sequences of transaction requests from fixed seeds: equal responses and states.

`make transaction-walks` runs more walks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from differential import transaction_walks
from differential.transaction_walks import OPERATIONS, Walk, fewest, random_steps
from selection import nightly_unless

if TYPE_CHECKING:
    from differential.scene import Pair

pytestmark = pytest.mark.conformance

WALKS = 10


@pytest.mark.parametrize("number", nightly_unless(range(4).__contains__, range(WALKS)))
def test_a_walk_is_equal_on_both_brokers(pair: Pair, number: int) -> None:
    seed = f"suite-{number}"
    found = Walk(pair, seed).play(random_steps(seed))
    assert not found, "\n" + "\n".join(found)


def test_the_walks_have_every_operation() -> None:
    played = {step.operation for number in range(WALKS) for step in random_steps(f"suite-{number}")}
    assert played == set(OPERATIONS)


def test_a_difference_is_reported_with_the_fewest_steps(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one side each abort becomes a commit; a begin and an abort show the difference."""
    request = transaction_walks.Walk._request

    def spoiled(self: Walk, step: object, producer: object) -> object:
        api, build = request(self, step, producer)  # type: ignore[arg-type]
        if getattr(step, "operation", "") != "abort" or not callable(build):
            return api, build
        return api, lambda side: {**build(side), "committed": side.name == "barnabas"}

    monkeypatch.setattr(transaction_walks.Walk, "_request", spoiled)
    seed = next(
        seed
        for seed in (f"spoiled-{n}" for n in range(50))
        if Walk(pair, seed).play(random_steps(seed))
    )
    left, found = fewest(pair, seed, random_steps(seed))
    assert found
    assert {step.operation for step in left} >= {"abort"}
    assert len(left) <= 4, left
