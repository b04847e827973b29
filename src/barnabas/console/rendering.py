"""Pages from templates, and tables in parts.

Everything that a template prints is escaped, also invisible characters. Long tables have pages, so
that no request renders more than a bounded number of rows.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

import jinja2

from barnabas.cli.common.printable import printable_lines
from barnabas.cli.why.reasons import duration
from barnabas.console.formats import moment, name_class, number, rate, size
from barnabas.console.history.charts import SPANS, line_chart

if TYPE_CHECKING:
    from collections.abc import Sequence

_PACKAGE = "barnabas.console"
_NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9._-]")
_ASSET_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Asset(NamedTuple):
    """A file of the package that browsers load."""

    content: bytes
    type: str
    # The content for browsers that accept gzip. Only files are compressed: the length of a
    # compressed page would tell about secrets in it (BREACH).
    compressed: bytes


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
            line_chart=line_chart,
            SPANS=SPANS,
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
            content = file.read_bytes()
            compressed = gzip.compress(content, mtime=0)
            found[file.name] = Asset(content, _ASSET_TYPES[suffix], compressed)
    return found


def _visible(value: object) -> object:
    """Show controls and marks for the direction of text as escapes; they could forge a page."""
    return printable_lines(value) if type(value) is str else value


def attachment(name: str) -> dict[str, str]:
    """Return the headers of a response that browsers save as a file.

    Args:
        name: The name of the file; characters that a file name may lack become "_".
    """
    return {"content-disposition": f'attachment; filename="{_NOT_IN_FILE_NAMES.sub("_", name)}"'}


def link(path: str, **fields: object) -> str:
    """Return a path with a query of the fields that are not None."""
    query = urlencode({key: str(value) for key, value in fields.items() if value is not None})
    return f"{path}?{query}" if query else path


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
