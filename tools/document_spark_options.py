"""Writes the tables of options in docs/spark.md and docs/tables.md from the lists of options.

Run `python -m tools.document_spark_options` after a change of an option; a test checks the pages.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from barnabas.spark.option_table import (
    DELTA_OPTIONS,
    ICEBERG_OPTIONS,
    OPTIONS,
    UPSERT_OPTIONS,
    Comparison,
    Purpose,
    TableOption,
)

DOCS = Path(__file__).parents[1] / "docs"
COMMAND = "python -m tools.document_spark_options"
HEAD = "| option | here, compared with Spark's connector | meaning |\n|---|---|---|\n"
SINK_HEAD = "| option | default | meaning |\n|---|---|---|\n"
END = "<!-- end of options -->"
_PAGE = re.compile(r"\bdocs/(\w+\.md)")
_WORDS = {
    Comparison.SAME: "same",
    Comparison.DIFFERS: "differs",
    Comparison.REFUSED: "refused",
    Comparison.ADDED: "only here",
}


def topic_table(purpose: Purpose) -> str:
    """Return the table of the options of reads or of writes of topics."""
    rows = [
        f"| `{option.name}` | {_WORDS[option.comparison]} | {_PAGE.sub(_link, option.sentence)} |\n"
        for option in OPTIONS
        if option.purpose.includes(purpose)
    ]
    return HEAD + "".join(rows)


def sink_table(options: Sequence[TableOption]) -> str:
    """Return the table of the options of a sink for tables."""
    rows = [
        f"| `{option.name}` | {option.default} | {_PAGE.sub(_link, option.sentence)} |\n"
        for option in options
    ]
    return SINK_HEAD + "".join(rows)


def _link(found: re.Match[str]) -> str:
    return f"[{found[1]}]({found[1]})"


# For each page: the name of a table of options, and its text.
PAGES = {
    "spark.md": {
        "reading": partial(topic_table, Purpose.READ),
        "writing": partial(topic_table, Purpose.WRITE),
        "Delta tables": partial(sink_table, DELTA_OPTIONS),
    },
    "tables.md": {
        "Iceberg tables": partial(sink_table, ICEBERG_OPTIONS),
        "upserts": partial(sink_table, UPSERT_OPTIONS),
    },
}


def document(name: str) -> str:
    """Return a page with new tables between their marks."""
    page = (DOCS / name).read_text()
    for part, table in PAGES[name].items():
        mark = f"<!-- options of {part}: written by `{COMMAND}` -->\n"
        before, found, rest = page.partition(mark)
        _, end, after = rest.partition(END)
        assert found, mark
        assert end, END
        page = f"{before}{mark}\n{table()}{END}{after}"
    return page


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--print", name]:
            sys.stdout.write(document(name))
        case _:
            for name in PAGES:
                (DOCS / name).write_text(document(name))
