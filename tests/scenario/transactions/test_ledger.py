"""The check of transactions finds each kind of fault, and accepts a correct history."""

from __future__ import annotations

import pytest

from scenario.transactions.ledger import Ledger, Result, Transaction, find_faults

PLACE = ("g", "t")


def transaction(
    ledger: Ledger, result: Result, producer: str = "p", offset: int | None = None
) -> Transaction:
    made = ledger.begin(producer)
    made.new_values("t", 2)
    made.new_values("u", 1)
    if offset is not None:
        made.offsets[PLACE] = offset
    made.result = result
    return made


def values(*transactions: Transaction) -> dict[str, list[bytes]]:
    """Return the values that readers see if exactly these transactions are visible."""
    found: dict[str, list[bytes]] = {"t": [], "u": []}
    for each in transactions:
        for topic, value in each.records:
            found[topic].append(value)
    return found


def test_a_correct_history_has_no_faults() -> None:
    ledger = Ledger()
    first = transaction(ledger, Result.COMMITTED, offset=5)
    transaction(ledger, Result.ABORTED, offset=6)
    unknown = transaction(ledger, Result.UNKNOWN, offset=7)
    other = transaction(ledger, Result.COMMITTED, "q")
    all_of_them = ledger.transactions
    assert find_faults(all_of_them, values(other, first, unknown), {PLACE: 7}) == []
    assert find_faults(all_of_them, values(first, other), {PLACE: 5}) == []
    assert ledger.topics == ["t", "u"]
    assert ledger.offset_places == [PLACE]


@pytest.mark.parametrize(
    ("result", "count", "fault"),
    [
        (Result.OPEN, 0, "unsettled: transaction 0 of p (open)"),
        (Result.COMMITTED, 2, "lost: 1 of 3 records of transaction 0 of p (committed)"),
        (Result.ABORTED, 1, "dirty: 1 of 3 records of transaction 0 of p (aborted)"),
        (Result.UNKNOWN, 2, "torn: 2 of 3 records of transaction 0 of p (unknown)"),
    ],
)
def test_a_partly_visible_transaction_is_a_fault(result: Result, count: int, fault: str) -> None:
    ledger = Ledger()
    made = transaction(ledger, result)
    visible: dict[str, list[bytes]] = {"t": [], "u": []}
    for topic, value in made.records[:count]:
        visible[topic].append(value)
    assert find_faults([made], visible, {}) == [fault]


def test_duplicated_reordered_and_phantom_records_are_faults() -> None:
    ledger = Ledger()
    first = transaction(ledger, Result.COMMITTED)
    second = transaction(ledger, Result.COMMITTED)
    doubled = values(first, second)
    doubled["u"].append(b"p:1:2")
    assert find_faults([first, second], doubled, {}) == ["duplicated: b'p:1:2' in u"]
    swapped = values(second, first)
    assert find_faults([first, second], swapped, {}) == [
        "reordered: b'p:0:0' in t behind (1, 1)",
        "reordered: b'p:0:2' in u behind (1, 2)",
    ]
    unknown = values(first, second)
    unknown["t"].append(b"unknown")
    assert find_faults([first, second], unknown, {}) == ["phantom: b'unknown' in t"]


@pytest.mark.parametrize("found", [-1, 4, 6])
def test_an_offset_of_another_transaction_is_a_fault(found: int) -> None:
    ledger = Ledger()
    transaction(ledger, Result.COMMITTED, offset=4)
    transaction(ledger, Result.COMMITTED, offset=5)
    transaction(ledger, Result.ABORTED, offset=6)
    (fault,) = find_faults(ledger.transactions, values(*ledger.transactions[:2]), {PLACE: found})
    assert fault == f"wrong offset: {found} of {PLACE}, expected [5]"


def test_offsets_of_an_unknown_transaction_without_records_may_be_committed_or_not() -> None:
    ledger = Ledger()
    first = ledger.begin("p")
    first.offsets[PLACE], first.result = 4, Result.COMMITTED
    last = ledger.begin("p")
    last.offsets[PLACE], last.result = 5, Result.UNKNOWN
    assert find_faults([first, last], {}, {PLACE: 4}) == []
    assert find_faults([first, last], {}, {PLACE: 5}) == []
    assert find_faults([first, last], {}, {PLACE: 6}) == [
        f"wrong offset: 6 of {PLACE}, expected [4, 5]"
    ]
