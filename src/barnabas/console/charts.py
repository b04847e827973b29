"""Lines over time as SVG points, drawn by the templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Chart", "line_chart"]

WIDTH, HEIGHT = 600, 100


class Chart(NamedTuple):
    """A line in a box of WIDTH × HEIGHT; values grow upwards from zero."""

    # "x,y x,y ...", as SVG has it.
    points: str
    highest: float
    latest: float
    # Seconds between the first and the last point.
    seconds: float
    width: int = WIDTH
    height: int = HEIGHT


def line_chart(series: Sequence[tuple[float, float]]) -> Chart | None:
    """Return the line through pairs of a time (s) and a value; None if there are less than two."""
    if len(series) < 2:
        return None
    begin, end = series[0][0], series[-1][0]
    highest = max(value for _, value in series)
    seconds = max(end - begin, 1e-6)
    scale = highest or 1.0
    points = " ".join(
        f"{(at - begin) / seconds * WIDTH:.1f},{HEIGHT - value / scale * (HEIGHT - 4) - 2:.1f}"
        for at, value in series
    )
    return Chart(points, highest, series[-1][1], seconds)
