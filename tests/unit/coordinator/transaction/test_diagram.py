"""The diagram in docs/transactions.md equals the table in the code."""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.coordinator.transaction.transaction_metadata import (
    TRANSACTION_STATES,
    TransactionState,
)

DOCUMENT = Path(__file__).parents[4] / "docs" / "transactions.md"
ARROW = re.compile(r"^    (\w+|\[\*\]) --> (\w+): ([\w ]+)$", re.MULTILINE)


def test_the_diagram_equals_the_table() -> None:
    first = {("[*]", TransactionState.EMPTY.label, "initialized")}
    table = {
        (before.label, after.label, event.value)
        for before, events in TRANSACTION_STATES.items()
        for event, after in events.items()
    }
    assert set(ARROW.findall(DOCUMENT.read_text())) == table | first
