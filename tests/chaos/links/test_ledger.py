"""The checker of the ledger finds each kind of violation."""

from __future__ import annotations

import pytest

from chaos.links.ledger import Fate, check_ledger

FATES = {0: Fate.COMMITTED, 1: Fate.ABORTED, 2: Fate.UNKNOWN, 3: Fate.COMMITTED}
WHOLE = [b"0", b"0", b"3", b"3"]


@pytest.mark.parametrize("with_unknown", [False, True])
def test_transactions_that_are_visible_as_a_whole_or_not_at_all_are_accepted(
    with_unknown: bool,
) -> None:
    unknown = [b"2", b"2"] if with_unknown else []
    partition = [b"0", b"0", *unknown, b"3", b"3"]
    assert check_ledger(FATES, [partition, partition]).is_clean


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("lost", [b"0", b"0"], [b"0", b"0"]),
        ("aborted but visible", [b"0", b"0", b"1", b"3", b"3"], WHOLE),
        ("half visible", [b"0", b"0", b"2", b"2", b"3", b"3"], WHOLE),
        ("half visible", [b"0", b"3", b"3"], WHOLE),
        ("half visible", [b"0", b"0", b"3", b"3", b"3"], WHOLE),
        ("reordered", [b"3", b"3", b"0", b"0"], WHOLE),
        ("unknown record", [*WHOLE, b"9"], WHOLE),
    ],
)
def test_each_violation_is_found(kind: str, first: list[bytes], second: list[bytes]) -> None:
    assert dict(check_ledger(FATES, [first, second]).counts) == {kind: 1}
