"""The project's performance budgets, by row of the tables of `bench.figures`.

A budget is relative to another broker in the same round ("<= 0.5x of kafka") or absolute. It is met
if it is met in each round.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["BUDGETS", "Budget", "budget_of", "speed_verdict"]

OURS = "barnabas"


class Budget(NamedTuple):
    """The limit of a value: the largest factor of another broker's value, or a number."""

    # Factor by broker.
    times: Mapping[str, float] = {}
    at_most: float | None = None
    at_least: float | None = None

    def verdict(self, rounds: Mapping[str, Sequence[float]]) -> str:
        """Return the budget, whether it is met, and the worst round.

        Args:
            rounds: the values of a row by broker, one for each round.

        Returns:
            The text; empty without values of the other broker.
        """
        parts = []
        ours = rounds[OURS]
        for name, times in self.times.items():
            if name in rounds:
                worst = max(
                    own / other if other else inf
                    for own, other in zip(ours, rounds[name], strict=True)
                )
                words = f"<= {times:g}x {name}"
                parts.append(f"{words} {_met(worst <= times)} (worst {worst:.2f}x)")
        if self.at_most is not None:
            worst = max(ours)
            parts.append(f"<= {self.at_most:g} {_met(worst <= self.at_most)} (worst {worst:,.2f})")
        if self.at_least is not None:
            worst = min(ours)
            met = _met(worst >= self.at_least)
            parts.append(f">= {self.at_least:g} {met} (worst {worst:,.2f})")
        return ", ".join(parts)


def _met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


BUDGETS = {
    "start to first answer, ms": Budget(at_most=300),
    "resident memory idle, MB": Budget(at_most=60),
    "resident memory after the load, MB": Budget(at_most=120),
    "produce, librdkafka defaults, 100 B: CPU s/GB": Budget({"kafka": 0.4, "tansu": 1.0}),
    "produce, 16 KiB batches, 100 B: CPU s/GB": Budget({"kafka": 0.4, "tansu": 1.0}),
    "produce, 1000 B: CPU s/GB": Budget({"floor": 1.25, "kafka": 0.6, "tansu": 1.0}),
    "consume, librdkafka defaults, 100 B: CPU s/GB": Budget({"kafka": 0.8}),
    "consume, 16 KiB batches, 100 B: CPU s/GB": Budget({"kafka": 0.7}),
    "consume, 1000 B: CPU s/GB": Budget({"floor": 1.25, "kafka": 1.0}),
    "acks=1 round trip p50, µs": Budget({"kafka": 0.7}),
    "acks=1 round trip p99, µs": Budget({"kafka": 0.7}),
    "memory of an idle connection, KB": Budget(at_most=6),
    "10,000 partitions made, s": Budget(at_most=3),
    "clean stop with the partitions, s": Budget(at_most=5),
    "three replicas, acks=all, 100 B: CPU s/GB": Budget({"kafka": 0.35}),
    "three replicas, acks=all, 1000 B: CPU s/GB": Budget({"kafka": 0.45}),
    "three replicas, acks=all, round trip: p50, µs": Budget({"kafka": 0.8}),
    "three replicas, acks=all, round trip: p99, µs": Budget({"kafka": 0.4}),
    "link, 1000 B: CPU s/GB": Budget({"mirror maker": 0.5}),
    "link, 1000 B: MB/s": Budget(at_least=200),
    "link, 100 B: CPU s/GB": Budget({"mirror maker": 0.5}),
    "link, 100 B: MB/s": Budget(at_least=200),
    "copy to the tier: CPU s/GB": Budget(at_most=0.4),
    "read from the tier: MB/s": Budget(at_least=150),
    "reads from the tier: p99 of others, times": Budget(at_most=1.5),
    # The read cache, and a response of 1 MiB for each.
    "200 readers: memory more than before, MB": Budget(at_most=344),
}

# By the end of the rows of `bench.transactions`, `bench.group_protocols` and `bench.share_groups`.
CASE_BUDGETS = {
    "CPU of the broker, ms": Budget({"kafka": 0.7}),
    "commit p50, ms": Budget({"kafka": 1.0}),
    "commit p99, ms": Budget({"kafka": 1.0}),
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
    return BUDGETS.get(row) or CASE_BUDGETS.get(row.rpartition(": ")[2])


def speed_verdict(ours: Sequence[float], others: Sequence[float], times: float) -> str:
    """Return the budget of a speed, whether it is met, and the worst round.

    Args:
        ours: our speed, one value for each round.
        others: the speed of the other side.
        times: the smallest allowed ratio.
    """
    worst = min(own / other for own, other in zip(ours, others, strict=True))
    return f">= {times:g}x {_met(worst >= times)} (worst {worst:.2f}x)"
