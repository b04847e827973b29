"""The project's performance budgets for one broker, by row of the table of `bench.run`.

A budget is relative to another broker in the same run ("<= 0.5x of kafka") or absolute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BUDGETS", "Budget", "budget_of"]

OURS = "barnabas"


class Budget(NamedTuple):
    """The largest allowed value: a factor of another broker's value, or a number."""

    # Factor by broker.
    times: Mapping[str, float] = {}
    at_most: float | None = None

    def verdict(self, values: Mapping[str, float]) -> str:
        """Return the budget and whether it is met; empty without the other broker's value."""
        parts = []
        for name, times in self.times.items():
            if name in values:
                parts.append((values[OURS] <= times * values[name], f"<= {times:g}x {name}"))
        if self.at_most is not None:
            parts.append((values[OURS] <= self.at_most, f"<= {self.at_most:g}"))
        return ", ".join(f"{words} {'met' if is_met else 'MISSED'}" for is_met, words in parts)


BUDGETS = {
    "start to first answer, ms": Budget(at_most=300),
    "resident memory idle, MB": Budget(at_most=60),
    "resident memory after the load, MB": Budget(at_most=120),
    "produce, librdkafka defaults, 100 B: CPU s/GB": Budget({"kafka": 0.5, "tansu": 1.0}),
    "produce, 16 KiB batches, 100 B: CPU s/GB": Budget({"kafka": 0.6, "tansu": 1.0}),
    "produce, 1000 B: CPU s/GB": Budget({"kafka": 0.9, "tansu": 1.0}),
    "consume, librdkafka defaults, 100 B: CPU s/GB": Budget({"kafka": 1.0}),
    "consume, 16 KiB batches, 100 B: CPU s/GB": Budget({"kafka": 1.0}),
    "consume, 1000 B: CPU s/GB": Budget({"kafka": 1.0}),
    "acks=1 round trip p50, µs": Budget({"kafka": 1.0}),
    "acks=1 round trip p99, µs": Budget({"kafka": 1.0}),
}

# By the end of the rows of `bench.transactions`.
TRANSACTION_BUDGETS = {
    "CPU of the broker, ms": Budget({"kafka": 0.7}),
    "commit p50, ms": Budget({"kafka": 1.0}),
    "commit p99, ms": Budget({"kafka": 1.0}),
}

# By the end of the rows of `bench.group_protocols` and `bench.share_groups`.
GROUP_BUDGETS = {
    "CPU until stable, s": Budget({"kafka": 0.7}),
    "CPU per heartbeat, µs": Budget({"kafka": 0.7}),
    "memory of the broker, MB": Budget({"kafka": 0.7}),
    "CPU of the broker per record, µs": Budget({"kafka": 0.7}),
}


# Prefix of the rows of `bench.tls`.
TLS = "TLS: "
TLS_BUDGET = Budget({"kafka": 1.0})


def budget_of(row: str) -> Budget | None:
    """Return the budget of a row, or None."""
    if row.startswith(TLS):
        return None if row.endswith("/s") else TLS_BUDGET
    figure = row.rpartition(": ")[2]
    return BUDGETS.get(row) or TRANSACTION_BUDGETS.get(figure) or GROUP_BUDGETS.get(figure)
