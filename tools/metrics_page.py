"""Writes the table of docs/metrics.md from the catalogue: `python tools/metrics_page.py`."""

from __future__ import annotations

from pathlib import Path

from barnabas.metrics.catalogue import CATALOGUE
from barnabas.metrics.family import MetricKind
from barnabas.server.metrics.exposition import exposition_name

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
BEGIN = "<!-- the table is written by tools/metrics_page.py -->\n"
END = "<!-- end of the table -->\n"


def page() -> str:
    """Return the current page with a new table."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    rows = ["| metric | kind | labels | what it says |", "|---|---|---|---|"]
    for name, row in CATALOGUE.items():
        suffix = "_total" if row.kind is MetricKind.COUNTER else ""
        shown = exposition_name(name, row.kind) + suffix
        labels = ", ".join(f"`{tag.replace('-', '_')}`" for tag in row.tags)
        rows.append(f"| `{shown}` | {row.kind.value} | {labels} | {row.text} |")
    return "\n".join([before + BEGIN, *rows, "", END + after])


if __name__ == "__main__":
    PAGE.write_text(page())
