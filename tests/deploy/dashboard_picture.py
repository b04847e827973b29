"""Draws the dashboard from what a real Prometheus holds: `python -m deploy.dashboard_picture FILE`.

Not Grafana: its rows, panels, queries and places are those of deploy/grafana/barnabas.json, drawn
by matplotlib. Three brokers run under load meanwhile. A client writes a burst to one partition, a
broker hangs for a while, and the active controller is killed and started again.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from deploy.dashboard_queries import DASHBOARD, filled
from deploy.observed_cluster import Observed, observed_cluster

_QUIET_S, _BURST_S, _HUNG_S, _DEAD_S, _AFTER_S = 25, 15, 5, 15, 30
_INK, _FAINT, _PAPER, _PANEL, _GRID = "#24292e", "#6a7178", "#f4f5f5", "#ffffff", "#e3e6e8"
_GREEN, _RED = "#1a7f4b", "#d10e5c"
_COLORS = (
    "#3274d9", "#e0752d", "#37872d", "#a352cc", "#c4162a", "#0a9396", "#9e7700", "#6e7681",
    "#d683ce", "#5794f2", "#ff9830", "#73bf69",
)  # fmt: skip
_LEGENDS_MAX = 6
# Longer names leave room for two columns of a legend instead of three.
_LEGEND_CHARS = 27
_SHORT_CHARS = 20
_INCHES_PER_UNIT = 0.42


def draw(observed: Observed, start: float, end: float, file: Path) -> None:
    """Draw all panels between two times (seconds since 1970) into a PNG file."""
    mpl.rcParams.update({"text.color": _INK, "axes.labelcolor": _INK, "font.size": 9})
    mpl.rcParams["axes.prop_cycle"] = mpl.cycler(color=_COLORS)
    panels = json.loads(DASHBOARD.read_text())["panels"]
    rows = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in panels)
    figure = plt.figure(figsize=(15, rows * _INCHES_PER_UNIT), facecolor=_PAPER)
    for panel in panels:
        place = panel["gridPos"]
        top = 1 - place["y"] / rows
        if panel["type"] == "row":
            figure.text(0.008, top - 0.75 / rows, panel["title"], fontsize=12, weight="bold")
            continue
        series = [
            (_legend(target["legendFormat"], found["metric"]), found["values"])
            for target in panel["targets"]
            for found in observed.prometheus.query_range(_expression(target), start, end)
        ]
        axes = _frame(figure, panel, rows)
        if panel["type"] == "stat":
            _draw_number(axes, panel, series)
        else:
            _draw_lines(axes, panel["fieldConfig"]["defaults"]["unit"], series, start)
    figure.savefig(file, dpi=80, facecolor=_PAPER)


def _frame(figure: Figure, panel: dict[str, Any], rows: int) -> Axes:
    """Return the axes of a panel, on a white ground with its title."""
    place = panel["gridPos"]
    left, width = place["x"] / 24, place["w"] / 24
    bottom, height = 1 - (place["y"] + place["h"]) / rows, place["h"] / rows
    margin_x, margin_y = 0.1 / 24, 0.1 / rows
    ground = figure.add_axes(
        (left + margin_x, bottom + margin_y, width - 2 * margin_x, height - 2 * margin_y)
    )
    ground.set(facecolor=_PANEL, xticks=[], yticks=[])
    for side in ground.spines.values():
        side.set_color(_GRID)
    top = bottom + height - 0.75 / rows
    figure.text(left + 0.3 / 24, top, panel["title"], fontsize=10)
    if panel["type"] == "stat":
        return figure.add_axes((left, bottom, width, height - 0.8 / rows), facecolor="none")
    axes = figure.add_axes(
        (left + 0.95 / 24, bottom + 2.1 / rows, width - 1.25 / 24, height - 3.1 / rows)
    )
    axes.set_facecolor(_PANEL)
    return axes


def _expression(target: dict[str, Any]) -> str:
    text: str = target["expr"]
    return filled(text, "5s")


def _legend(text: str, labels: dict[str, str]) -> str:
    for name, value in labels.items():
        shown = Path(value).parent.name if name == "logDirectory" else value
        text = text.replace("{{" + name + "}}", shown)
    return text if len(text) <= _LEGEND_CHARS else text[: _LEGEND_CHARS - 1] + "…"


def _draw_number(axes: Axes, panel: dict[str, Any], series: Sequence[Any]) -> None:
    value = float(series[0][1][-1][1])
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    is_red = any(step["value"] is not None and value >= step["value"] for step in steps)
    axes.set_axis_off()
    color = _RED if is_red else _GREEN
    axes.text(0.5, 0.45, f"{value:g}", ha="center", va="center", fontsize=26, color=color)


def _draw_lines(axes: Axes, unit: str, series: Sequence[Any], start: float) -> None:
    highest = 0.0
    ranked = sorted(series, key=lambda each: -_peak(each[1]))
    for name, values in ranked:
        # A second without a value breaks the line. A legend leaves out names that begin with "_".
        found = {round(float(at) - start): float(value) for at, value in values}
        times = range(min(found), max(found) + 1)
        heights = [found.get(at, math.nan) for at in times]
        axes.plot(times, heights, linewidth=1.2, label=f" {name}")
        highest = max(highest, _peak(values))
    _mark_values(axes, unit, highest)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} s"))
    axes.set_ylim(0, highest * 1.1 or 1)
    axes.tick_params(colors=_FAINT, labelsize=7.5, length=0)
    axes.grid(color=_GRID, linewidth=0.6)
    for side in axes.spines.values():
        side.set_visible(False)
    if not series:
        axes.text(0.5, 0.5, "No data", transform=axes.transAxes, ha="center", color=_RED)
        return
    handles, labels = axes.get_legend_handles_labels()
    columns = 3 if max(map(len, labels[:_LEGENDS_MAX])) <= _SHORT_CHARS else 2
    shown = 2 * columns
    axes.legend(
        handles[:shown], labels[:shown], ncols=columns,
        loc="upper left", bbox_to_anchor=(-0.08, -0.16), fontsize=8, frameon=False,
        handlelength=1.2, columnspacing=1.2, borderaxespad=0, labelspacing=0.25,
    )  # fmt: skip


def _peak(values: Sequence[Any]) -> float:
    numbers = [float(value) for _, value in values]
    return max((each for each in numbers if math.isfinite(each)), default=0.0)


_BINARY = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_TIMES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))
_COUNTS = ((1e6, "M"), (1e3, "k"), (1.0, ""))
# Grafana's units: the scales of their values, and what one of the unit is.
_SCALES = {
    "s": (_TIMES, 1.0),
    "ms": (_TIMES, 0.001),
    "bytes": (_BINARY, 1.0),
    "Bps": (_BINARY, 1.0),
    "percentunit": (((0.01, "%"),), 1.0),
}


def _mark_values(axes: Axes, unit: str, highest: float) -> None:
    """Label the axis with round numbers of one scale, such as MiB/s."""
    steps, one = _SCALES.get(unit, (_COUNTS, 1.0))
    scale, letters = next((each for each in steps if highest * one >= each[0]), steps[-1])
    top = highest * one / scale or 1.0
    marks = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]).tick_values(0, top)
    suffix = letters + ("/s" if unit == "Bps" else "")
    labels = [f"{mark:g} {suffix}".strip() for mark in marks]
    axes.set_yticks([mark * scale / one for mark in marks], labels)


def main() -> None:
    """Run the cluster, disturb it, draw."""
    with tempfile.TemporaryDirectory() as directory, observed_cluster(Path(directory)) as observed:
        start = time.time() + 5
        time.sleep(5 + _QUIET_S)
        observed.write_burst(_BURST_S)
        time.sleep(_QUIET_S)
        controller = observed.active_controller()
        other = next(each for each in observed.cluster.brokers if each is not controller)
        other.pause()
        time.sleep(_HUNG_S)
        other.resume()
        time.sleep(_QUIET_S)
        controller.kill()
        time.sleep(_DEAD_S)
        controller.start()
        time.sleep(_AFTER_S)
        draw(observed, start, time.time(), Path(sys.argv[1]))


if __name__ == "__main__":
    main()
