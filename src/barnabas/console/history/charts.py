"""Charts with axes, drawn by the server as SVG.

A chart has lines over one span of time. Its drawing has no style of its own, since the policy of
the pages forbids it. Lines and areas are stretched to the width of the window; texts are placed by
percentages, so that they keep their size. Rectangles over the lines carry the values as tooltips.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from barnabas.cli.common.units import utc_text
from barnabas.console.formats import number, rate, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Pairs of a time (s since 1970) and a value, in order; None: no value, which interrupts the line.
Points: TypeAlias = "Sequence[tuple[float, float | None]]"
# How values are shown: records per second, bytes per second, bytes, a number, milliseconds.
Unit: TypeAlias = Literal["/s", "B/s", "B", "", "ms"]

# The box of the lines, in units of the drawing; y grows downwards.
WIDTH, HEIGHT = 1000, 100
# Points of a line and tooltips of a chart at most, so that a page stays small.
_POINTS_MAX = 120
_TIPS_MAX = 40
_TICKS_MAX = 4
_TIME_STEPS_S = (
    5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
)  # fmt: skip
_TIMES_MAX = 5


class Span(NamedTuple):
    """A span of time that a page shows, up to now (s since 1970)."""

    key: str
    begin: float
    end: float


# Seconds by the name in the address.
SPANS = {"15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400}


def chosen_span(key: str, now: float) -> Span:
    """Return the span of a name in the address; the shortest one for any other text."""
    key = key if key in SPANS else next(iter(SPANS))
    return Span(key, now - SPANS[key], now)


class Line(NamedTuple):
    """A line of a chart."""

    label: str
    points: Points


class Tick(NamedTuple):
    """A text at an axis. `at` is a percentage of the width, or a y of the box."""

    at: float
    text: str


class DrawnLine(NamedTuple):
    """A line of a chart, ready for SVG."""

    label: str
    # The line and the area below it, as SVG has paths.
    path: str
    area: str
    latest: str
    highest: str


class Tip(NamedTuple):
    """A tooltip over a part of the width."""

    x: float
    width: float
    text: str


class AxisChart(NamedTuple):
    """A chart, ready for the macro `axes` of `templates/charts.html`."""

    title: str
    lines: Sequence[DrawnLine]
    values: Sequence[Tick]
    times: Sequence[Tick]
    tips: Sequence[Tip]
    # Begin and end of the time axis, as texts.
    begin: str
    end: str
    width: int = WIDTH
    height: int = HEIGHT


def axis_chart(
    title: str,
    lines: Sequence[Line],
    unit: Unit = "/s",
    span: Span | None = None,
) -> AxisChart | None:
    """Return the chart of some lines; None if no line has two values.

    Args:
        title: What the values are.
        lines: The lines; their values are not negative.
        unit: How values are shown.
        span: The span of the time axis; None for that of the points.
    """
    known = [[at for at, value in each.points if value is not None] for each in lines]
    if max(map(len, known), default=0) < 2:
        return None
    if span is None:
        begin, end = min(each[0] for each in known if each), max(each[-1] for each in known if each)
    else:
        begin, end = span.begin, span.end
    if end <= begin:
        return None
    thinned = [
        Line(each.label, _thinned([p for p in each.points if begin <= p[0] <= end], begin, end))
        for each in lines
    ]
    values = [value for each in thinned for _, value in each.points if value is not None]
    if not values:
        return None
    ticks, top = _value_ticks(max(values), unit)
    return AxisChart(
        title,
        [_drawn(each, begin, end, top, unit) for each in thinned],
        [Tick(_y(value, top), text) for value, text in ticks],
        list(_time_ticks(begin, end)),
        list(_tips(thinned, begin, end, unit)),
        _time_text(begin, 60),
        _time_text(end, 60),
    )


def line_chart(
    title: str, points: Points, unit: Unit = "/s", span: Span | None = None
) -> AxisChart | None:
    """Return the chart of one line; None if it has less than two values."""
    return axis_chart(title, [Line(title, list(points))], unit, span)


def value_text(value: float | None, unit: Unit) -> str:
    """Return a value with its unit; a dash for None."""
    if value is None:
        return "–"
    if unit == "ms":
        return f"{value:.1f} ms" if value < 10 else f"{number(value)} ms"
    if unit in {"B", "B/s"}:
        return size(value) + unit[1:]
    return f"{rate(value)} /s" if unit == "/s" else number(value)


def _thinned(points: Points, begin: float, end: float) -> Points:
    """Return at most `_POINTS_MAX` points; each is the highest value of its part of the span."""
    if len(points) <= _POINTS_MAX:
        return points
    step = (end - begin) / _POINTS_MAX
    kept: list[tuple[float, float | None]] = []
    part = -1
    for at, value in points:
        own = min(int((at - begin) / step), _POINTS_MAX - 1)
        if own != part:
            part = own
            kept.append((at, value))
        elif value is not None and (kept[-1][1] is None or value > kept[-1][1]):
            kept[-1] = (at, value)
    return kept


def _y(value: float, top: float) -> float:
    return round(HEIGHT - value / top * HEIGHT, 1)


def _drawn(line: Line, begin: float, end: float, top: float, unit: Unit) -> DrawnLine:
    scale = WIDTH / (end - begin)
    parts: list[list[tuple[float, float]]] = [[]]
    for at, value in line.points:
        if value is not None:
            parts[-1].append((round((at - begin) * scale, 1), _y(value, top)))
        elif parts[-1]:
            parts.append([])
    texts = [" ".join(f"{x:g},{y:g}" for x, y in part) for part in parts]
    path = "".join(f"M{text}" for text in texts if text)
    area = "".join(
        f"M{part[0][0]:g},{HEIGHT} {text} {part[-1][0]:g},{HEIGHT}Z"
        for part, text in zip(parts, texts, strict=True)
        if text
    )
    values = [value for _, value in line.points if value is not None]
    latest = line.points[-1][1] if line.points else None
    return DrawnLine(
        line.label,
        path,
        area,
        value_text(latest, unit),
        value_text(max(values, default=None), unit),
    )


def _value_ticks(highest: float, unit: Unit) -> tuple[list[tuple[float, str]], float]:
    """Return round values for the axis with their texts, and the value at its top."""
    top = highest if highest > 0 else 1.0
    base = 1024.0 if unit in {"B", "B/s"} else 1000.0
    power = base ** math.floor(math.log(top / _TICKS_MAX, base))
    step = next(
        power * factor
        for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500, base, 2 * base)
        if top / (power * factor) <= _TICKS_MAX
    )
    count = math.ceil(top / step)
    ticks = [(step * index, value_text(step * index, unit)) for index in range(1, count + 1)]
    return ticks, step * count


def _time_ticks(begin: float, end: float) -> Iterator[Tick]:
    """Yield round times between the ends of the axis."""
    seconds = end - begin
    step = next((each for each in _TIME_STEPS_S if seconds / each <= _TIMES_MAX), 86_400)
    # A text at the very edge of a narrow window would be cut off.
    margin = 9 if step < 60 else 5
    at = math.ceil(begin / step) * step
    while at <= end:
        place = (at - begin) / seconds * 100
        if margin <= place <= 100 - margin:
            yield Tick(round(place, 2), _time_text(at, step))
        at += step


def _time_text(at: float, step: float) -> str:
    text = utc_text(int(at * 1000), "seconds")
    return text[11:19] if step < 60 else text[11:16]


def _tips(lines: Sequence[Line], begin: float, end: float, unit: Unit) -> Iterator[Tip]:
    """Yield the newest values of each part of the width."""
    step = (end - begin) / _TIPS_MAX
    found: dict[int, dict[str, tuple[float, float]]] = {}
    for line in lines:
        for at, value in line.points:
            if value is not None:
                part = min(int((at - begin) / step), _TIPS_MAX - 1)
                found.setdefault(part, {})[line.label] = (at, value)
    width = WIDTH / _TIPS_MAX
    for part, values in sorted(found.items()):
        at = max(at for at, _ in values.values())
        texts = [
            f"{label} {value_text(value, unit)}" if len(lines) > 1 else value_text(value, unit)
            for label, (_, value) in values.items()
        ]
        text = f"{_time_text(at, 1)}: {', '.join(texts)}"
        yield Tip(round(part * width, 1), width, text)
