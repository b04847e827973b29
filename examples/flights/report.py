"""The demo's report: a summary table and a plot of the year."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

COLORS = {"EWR": "#1b6ca8", "JFK": "#d1495b", "LGA": "#3c8d5a"}


def summary(console: Console, hours: pd.DataFrame, facts: dict[str, str]) -> None:
    """Prints the year by airport, and the facts of the run."""
    table = Table(title="New York departures of 2013, as the pipeline counted them")
    for name in ("airport", "hours", "flights", "late", "cancelled", "mean delay", "worst hour"):
        table.add_column(name, justify="left" if name in {"airport", "worst hour"} else "right")
    for airport, rows in hours.groupby("origin"):
        worst = rows.loc[rows["delay_minutes"].idxmax()]
        left = rows["flights"].sum() - rows["cancelled"].sum()
        table.add_row(
            str(airport),
            f"{len(rows):,}",
            f"{rows['flights'].sum():,}",
            f"{rows['delayed'].sum():,}",
            f"{rows['cancelled'].sum():,}",
            f"{rows['delay_minutes'].sum() / left:.1f} min",
            f"{worst['hour']:%Y-%m-%d %H:00}, {worst['latest_airline']}",
        )
    console.print(table)
    for name, value in facts.items():
        console.print(f"  [bold]{name:<24}[/bold] {value}")


def plot(hours: pd.DataFrame, path: Path) -> None:
    """Writes the plot: late and cancelled departures through the year, and by visibility."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (year, visibility) = plt.subplots(
        1, 2, figsize=(12, 4.5), width_ratios=(2.4, 1), layout="constrained"
    )
    bad = hours.assign(bad=hours["delayed"] + hours["cancelled"])
    for airport, rows in bad.groupby("origin"):
        daily = rows.set_index("hour")[["bad", "flights"]].resample("1D").sum().rolling(7).sum()
        share = 100 * daily["bad"] / daily["flights"]
        year.plot(share.index, share, label=airport, color=COLORS[str(airport)], linewidth=1.6)
    year.set_title("Departures late by more than 15 minutes or cancelled, 7 days", loc="left")
    year.set_ylabel("% of departures")
    year.legend(frameon=False)
    known = bad[bad["visib"].notna()]
    bins = pd.cut(known["visib"], [-0.1, 1, 3, 6, 9, 10], labels=["≤1", "1-3", "3-6", "6-9", "10"])
    grouped = known.groupby(bins, observed=True)[["bad", "flights"]].sum()
    share = 100 * grouped["bad"] / grouped["flights"]
    visibility.bar(share.index.astype(str), share, color="#6c757d")
    visibility.set_title("by visibility, miles", loc="left")
    for axes in (year, visibility):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", alpha=0.25)
    figure.savefig(path, dpi=120)
    plt.close(figure)
