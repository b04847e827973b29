"""The figures of all rounds of a benchmark, and their table with ratios and budgets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.table import Table

from bench.budgets import budget_of
from bench.report import machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

__all__ = ["Figures", "show"]


class Figures:
    """The figures of all rounds, by row and broker."""

    def __init__(self) -> None:
        self.rounds: dict[str, dict[str, list[float]]] = {}

    def note(self, broker: str, found: Mapping[str, float]) -> None:
        """Add the figures of one round."""
        for row, value in found.items():
            self.rounds.setdefault(row, {}).setdefault(broker, []).append(value)

    @property
    def rows(self) -> dict[str, dict[str, float]]:
        """The best figure of each row and broker: the highest rate, or the lowest other value."""
        return {
            row: {name: (max if row.endswith("/s") else min)(values) for name, values in of.items()}
            for row, of in self.rounds.items()
        }


def show(figures: Figures, names: list[str], console: Console) -> None:
    """Print the table: a column per broker, Barnabas's ratio to each, and the budget."""
    table = Table(title=f"{os.cpu_count()} cores, {machine()}")
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    for name in names[1:]:
        table.add_column(f"barnabas / {name}", justify="right")
    table.add_column("budget")
    for row, values in figures.rows.items():
        ours = values[names[0]]
        cells = [f"{values[name]:,.2f}" if name in values else "" for name in names]
        ratios = [f"{ours / values[name]:.2f}x" if values.get(name) else "" for name in names[1:]]
        budget = budget_of(row)
        verdict = "" if budget is None else budget.verdict(figures.rounds[row])
        table.add_row(row, *cells, *ratios, verdict)
    console.print(table)
