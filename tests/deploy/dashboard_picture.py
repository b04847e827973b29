"""Draws the dashboard from what a real Prometheus holds: `python -m deploy.dashboard_picture FILE`.

Not Grafana: its panels, queries and places are those of deploy/grafana/barnabas.json, drawn by
matplotlib. Three brokers run under load meanwhile; one is killed and started again.
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
from matplotlib.ticker import FuncFormatter

from deploy.dashboard_queries import filled
from deploy.observed_cluster import Observed, observed_cluster
from deploy.prometheus_server import ROOT

_BEFORE_S, _DEAD_S, _AFTER_S = 45, 15, 30
_INK, _PAPER, _PANEL = "#ccccdc", "#111217", "#181b1f"
_LEGENDS_MAX = 6
_LINES_MAX = 40
_ROOM_FOR_NAMES = 1.5


def draw(observed: Observed, start: float, end: float, file: Path) -> None:
    """Draw all panels between two times (seconds since 1970) into a PNG file."""
    mpl.rcParams.update({"text.color": _INK, "axes.labelcolor": _INK, "font.size": 7})
    panels = json.loads((ROOT / "deploy/grafana/barnabas.json").read_text())["panels"]
    rows = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in panels)
    figure = plt.figure(figsize=(16, rows * 0.42), facecolor=_PAPER)
    for panel in panels:
        place = panel["gridPos"]
        left, width = (place["x"] + 0.75) / 24, (place["w"] - 1.0) / 24
        bottom = 1 - (place["y"] + place["h"] - 0.9) / rows
        axes = figure.add_axes((left, bottom, width, (place["h"] - 1.9) / rows))
        axes.set_facecolor(_PANEL)
        axes.set_title(panel["title"], loc="left", fontsize=9, color=_INK)
        series = [
            (_legend(target["legendFormat"], found["metric"]), found["values"])
            for target in panel["targets"]
            for found in observed.prometheus.query_range(_expression(target), start, end)
        ]
        if panel["type"] == "stat":
            _draw_number(axes, panel, series)
        else:
            _draw_lines(axes, panel["fieldConfig"]["defaults"]["unit"], series, start)
    figure.savefig(file, dpi=90, facecolor=_PAPER)


def _expression(target: dict[str, Any]) -> str:
    text: str = target["expr"]
    return filled(text, "5s")


def _legend(text: str, labels: dict[str, str]) -> str:
    for name, value in labels.items():
        shown = Path(value).parent.name if name == "logDirectory" else value
        text = text.replace("{{" + name + "}}", shown)
    return text


def _draw_number(axes: Axes, panel: dict[str, Any], series: Sequence[Any]) -> None:
    value = float(series[0][1][-1][1])
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    is_red = any(step["value"] is not None and value >= step["value"] for step in steps)
    axes.set_axis_off()
    color = "#f2495c" if is_red else "#73bf69"
    axes.text(0.5, 0.4, f"{value:g}", ha="center", va="center", fontsize=24, color=color)


def _draw_lines(axes: Axes, unit: str, series: Sequence[Any], start: float) -> None:
    highest = 0.0
    for name, values in series[:_LINES_MAX]:
        # A second without a value breaks the line.
        found = {round(float(at) - start): float(value) for at, value in values}
        times = range(min(found), max(found) + 1)
        heights = [found.get(at, math.nan) for at in times]
        axes.plot(times, heights, linewidth=1.1, label=name)
        highest = max([highest, *found.values()])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _with_unit(value, unit)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} s"))
    axes.set_ylim(0, highest * _ROOM_FOR_NAMES or 1)
    axes.tick_params(colors=_INK)
    axes.grid(color="#2c3235", linewidth=0.5)
    if series:
        names = axes.legend(
            *[each[:_LEGENDS_MAX] for each in axes.get_legend_handles_labels()],
            loc="upper left", fontsize=6, facecolor=_PANEL, edgecolor="none", labelcolor=_INK,
        )  # fmt: skip
        names.get_frame().set_alpha(0.7)


def _with_unit(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    steps = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    scale, letter = next((each for each in steps if value >= each[0]), (1.0, ""))
    shown = f"{value / scale:.3g}{letter}"
    return shown + {"Bps": "B/s", "bytes": "B", "ms": " ms", "s": " s"}.get(unit, "")


def main() -> None:
    """Run the cluster, disturb it, draw."""
    with tempfile.TemporaryDirectory() as directory, observed_cluster(Path(directory)) as observed:
        start = time.time() + 5
        time.sleep(_BEFORE_S)
        node = observed.cluster.brokers[1]
        node.kill()
        time.sleep(_DEAD_S)
        node.start()
        time.sleep(_AFTER_S)
        draw(observed, start, time.time(), Path(sys.argv[1]))


if __name__ == "__main__":
    main()
