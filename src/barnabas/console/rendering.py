"""Pages from templates, tables in parts, and charts.

Everything that a template prints is escaped, also invisible characters. Long tables have pages, so
that no request renders more than a bounded number of rows.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

import jinja2

from barnabas.cli.common.printable import printable_lines
from barnabas.cli.common.units import utc_text
from barnabas.cli.why.reasons import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

_PACKAGE = "barnabas.console"
_ASSET_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SIZE_STEP = 1024
# Longer names may break anywhere.
_NAME_LENGTH = 20


class Asset(NamedTuple):
    """A file of the package that browsers load."""

    content: bytes
    type: str


class Renderer:
    """The templates, with the functions that they use.

    Args:
        loaded: The assets; their names in links change with their content.
        prefix: The path below which the pages are, without a slash at its end; "" for "/".
    """

    def __init__(self, loaded: dict[str, Asset], prefix: str = "") -> None:
        self.environment = environment = jinja2.Environment(
            loader=jinja2.PackageLoader(_PACKAGE),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=_visible,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        digests = {name: hashlib.sha256(each.content).hexdigest() for name, each in loaded.items()}
        environment.globals.update(
            link=lambda path, **fields: prefix + link(path, **fields),
            chart=line_chart,
            asset=lambda name: link(f"/static/{name}", v=digests[name][:12]),
        )
        environment.filters.update(
            number=number,
            size=size,
            rate=rate,
            moment=moment,
            duration=duration,
            name_class=name_class,
        )

    def render(self, template: str, values: dict[str, Any]) -> str:
        """Return the page."""
        return self.environment.get_template(template).render(values)


def assets() -> dict[str, Asset]:
    """Return the assets by their file names."""
    found = {}
    for file in files(_PACKAGE).joinpath("static").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in _ASSET_TYPES:
            found[file.name] = Asset(file.read_bytes(), _ASSET_TYPES[suffix])
    return found


def _visible(value: object) -> object:
    """Show controls and marks for the direction of text as escapes; they could forge a page."""
    return printable_lines(value) if type(value) is str else value


def link(path: str, **fields: object) -> str:
    """Return a path with a query of the fields that are not None."""
    query = urlencode({key: str(value) for key, value in fields.items() if value is not None})
    return f"{path}?{query}" if query else path


def name_class(name: str) -> str:
    """Return the style classes of a cell with a name."""
    return "name long" if len(name) > _NAME_LENGTH else "name"


def number(value: float | None) -> str:
    """Return a whole number with thin spaces between thousands; a dash for None."""
    return "–" if value is None else f"{round(value):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def size(value: float | None) -> str:
    """Return a number of bytes with a unit; a dash for None and negative numbers."""
    if value is None or value < 0:
        return "–"
    step = 0
    while value >= _SIZE_STEP and step < len(_SIZES) - 1:
        value /= _SIZE_STEP
        step += 1
    digits = 0 if step == 0 or value >= 100 else 1
    return f"{value:.{digits}f} {_SIZES[step]}"


def rate(value: float | None) -> str:
    """Return a number per second; a dash for None."""
    if value is None:
        return "–"
    return f"{value:.1f}" if 0 < value < 10 else number(value)


def moment(time_ms: int) -> str:
    """Return a time in UTC; a dash for -1, which means unknown."""
    return "–" if time_ms < 0 else utc_text(time_ms).replace("T", " ")


T = TypeVar("T")
ROWS_MAX = 100


class Page(NamedTuple, Generic[T]):
    """Some rows of a table; pages are counted from 1."""

    rows: Sequence[T]
    number: int
    last: int
    # Rows of all pages.
    total: int


def paged(rows: Sequence[T], number: int) -> Page[T]:
    """Return one page of the rows; the last one if there are fewer pages."""
    last = max(1, -(-len(rows) // ROWS_MAX))
    number = min(max(1, number), last)
    start = (number - 1) * ROWS_MAX
    return Page(rows[start : start + ROWS_MAX], number, last, len(rows))


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
