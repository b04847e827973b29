"""Charts: lines in their box, round values and times at the axes, tooltips."""

from __future__ import annotations

import re

import pytest

from barnabas.console.history.charts import (
    HEIGHT,
    WIDTH,
    AxisChart,
    Line,
    Span,
    Unit,
    axis_chart,
    chosen_span,
)
from barnabas.console.rendering import Renderer, assets

# 2026-01-31 12:00 UTC.
NOON = 1_769_860_800.0


def chart(*values: float | None, step: float = 60.0, unit: Unit = "/s") -> AxisChart:
    points = [(NOON + index * step, value) for index, value in enumerate(values)]
    made = axis_chart("Records", [Line("all", points)], unit)
    assert made is not None
    return made


def coordinates(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", path)]


def test_a_chart_needs_two_values() -> None:
    assert axis_chart("Records", []) is None
    assert axis_chart("Records", [Line("all", [(NOON, 1.0), (NOON + 1, None)])]) is None


@pytest.mark.parametrize("values", [(0.0, 0.0), (0.0, 10.0, 5.0), (1e-9, 3e-9), (1.0, 1e18)])
@pytest.mark.parametrize("unit", ["/s", "B/s", "ms", ""])
def test_lines_stay_in_their_box_and_begin_and_end_at_its_sides(
    values: tuple[float, ...], unit: Unit
) -> None:
    made = chart(*values, unit=unit)
    found = coordinates(made.lines[0].path)
    assert (found[0][0], found[-1][0]) == (0, WIDTH)
    assert all(0 <= y <= HEIGHT for _, y in found)
    assert 1 <= len(made.values) <= 5


def test_a_missing_value_interrupts_the_line() -> None:
    assert chart(1.0, 2.0, None, 3.0, 4.0).lines[0].path.count("M") == 2


def test_the_axes_have_round_values_and_times() -> None:
    made = chart(*[float(index) for index in range(31)])
    assert [each.text for each in made.values] == ["10 /s", "20 /s", "30 /s"]
    assert [each.text for each in made.times] == ["12:10", "12:20"]
    assert (made.begin, made.end) == ("12:00", "12:30")
    sizes = chart(0.0, 3 * 2**20, unit="B/s")
    assert [each.text for each in sizes.values] == ["1.0 MiB/s", "2.0 MiB/s", "3.0 MiB/s"]


def test_a_long_line_is_thinned_and_keeps_its_peak() -> None:
    values = [1.0] * 2000
    values[777] = 50.0
    made = chart(*values)
    assert len(coordinates(made.lines[0].path)) <= 130
    assert made.lines[0].highest == "50 /s"
    assert len(made.tips) <= 40


def test_a_span_cuts_older_points_and_leaves_room_for_missing_ones() -> None:
    points = [(NOON + index, 1.0 if index < 50 else 2.0) for index in range(100)]
    made = axis_chart("Records", [Line("all", points)], span=Span("", NOON + 60, NOON + 140))
    assert made is not None
    found = coordinates(made.lines[0].path)
    assert found[0][0] == 0
    assert found[-1][0] < WIDTH / 2
    assert {y for _, y in found} == {0}


def test_the_address_chooses_a_span_and_an_unknown_one_is_the_shortest() -> None:
    assert chosen_span("6h", NOON) == ("6h", NOON - 6 * 3600, NOON)
    assert chosen_span("9 years", NOON) == ("15m", NOON - 900, NOON)


def test_a_tooltip_names_the_lines() -> None:
    lines = [Line(name, [(NOON, 1.0), (NOON + 60, 2.0)]) for name in ("p50", "p99")]
    made = axis_chart("Latency", lines, "ms")
    assert made is not None
    assert made.tips[-1].text == "12:01:00: p50 2.0 ms, p99 2.0 ms"


def test_the_macro_draws_without_styles_and_escapes_titles() -> None:
    text = '{% import "charts.html" as charts %}{{ charts.axes(chart, "Records") }}'
    template = Renderer(assets()).environment.from_string(text)
    page = template.render(chart=chart(1.0, 2.0)._replace(title="<b>"))
    assert "style=" not in page
    assert "&lt;b&gt;" in page
    assert page.count("<title>") == 2
    assert "appears after two samples" in template.render(chart=None)
