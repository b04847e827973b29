"""Writes the tables of docs/metrics.md from the catalogues: `python tools/metrics_page.py`."""

from __future__ import annotations

from pathlib import Path

from barnabas.metrics.catalogue import CATALOGUE, NODE_CATALOGUE, QUERY_CATALOGUE
from barnabas.metrics.metric_row import MetricRow
from barnabas.metrics.metrics_listener import exposition_name
from barnabas.metrics.registry import MetricKind

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
BEGIN = "<!-- the table is written by tools/metrics_page.py -->\n"
BEGIN_OF_QUERIES = "<!-- the table of queries is written by tools/metrics_page.py -->\n"
BEGIN_OF_NODES = "<!-- the table of nodes is written by tools/metrics_page.py -->\n"
END = "<!-- end of the table -->\n"


def page() -> str:
    """Return the current page with new tables."""
    text = _with_table(PAGE.read_text(), BEGIN, CATALOGUE)
    text = _with_table(text, BEGIN_OF_NODES, NODE_CATALOGUE)
    return _with_table(text, BEGIN_OF_QUERIES, QUERY_CATALOGUE)


def _with_table(text: str, begin: str, catalogue: dict[str, MetricRow]) -> str:
    before, _, rest = text.partition(begin)
    after = rest.partition(END)[2]
    rows = ["| metric | kind | labels | what it says |", "|---|---|---|---|"]
    for name, row in catalogue.items():
        suffix = "_total" if row.kind is MetricKind.COUNTER else ""
        shown = exposition_name(name, row.kind) + suffix
        labels = ", ".join(f"`{tag.replace('-', '_')}`" for tag in row.tags)
        rows.append(f"| `{shown}` | {row.kind.value} | {labels} | {row.text} |")
    return "\n".join([before + begin, *rows, "", END + after])


if __name__ == "__main__":
    PAGE.write_text(page())
