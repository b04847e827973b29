"""Writes the tables of options in docs/spark.md from `barnabas.spark.option_table`.

Run `python -m tools.document_spark_options` after a change of an option; a test checks the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from barnabas.spark.option_table import OPTIONS, Comparison, Purpose

FILE = Path(__file__).parents[1] / "docs" / "spark.md"
COMMAND = "python -m tools.document_spark_options"
HEAD = "| option | here, compared with Spark's connector | meaning |\n|---|---|---|\n"
END = "<!-- end of options -->"
PARTS = {"reading": Purpose.READ, "writing": Purpose.WRITE}
_PAGE = re.compile(r"\bdocs/(\w+\.md)")
_WORDS = {
    Comparison.SAME: "same",
    Comparison.DIFFERS: "differs",
    Comparison.REFUSED: "refused",
    Comparison.ADDED: "only here",
}


def table(purpose: Purpose) -> str:
    """Return the table of the options of reads or of writes."""
    rows = [
        f"| `{option.name}` | {_WORDS[option.comparison]} | {_PAGE.sub(_link, option.sentence)} |\n"
        for option in OPTIONS
        if option.purpose.includes(purpose)
    ]
    return HEAD + "".join(rows)


def _link(found: re.Match[str]) -> str:
    return f"[{found[1]}]({found[1]})"


def document() -> str:
    """Return the page with new tables between their marks."""
    page = FILE.read_text()
    for name, purpose in PARTS.items():
        mark = f"<!-- options of {name}: written by `{COMMAND}` -->\n"
        before, found, rest = page.partition(mark)
        _, end, after = rest.partition(END)
        assert found, mark
        assert end, END
        page = f"{before}{mark}\n{table(purpose)}{END}{after}"
    return page


if __name__ == "__main__":
    if "--print" in sys.argv:
        sys.stdout.write(document())
    else:
        FILE.write_text(document())
