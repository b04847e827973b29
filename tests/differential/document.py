"""Writes what the cases compared into docs/compatibility.md: `make compatibility`.

Runs every case against both brokers, and replaces what stands between the two marks. The text has
no times, and only numbers that come out the same in each run.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.protocol.api_keys import api_row
from barnabas.protocol.api_table import ApiKey
from barnabas.server.handlers.table import SERVED_APIS
from differential.all_cases import CASES
from differential.case import spans
from differential.known_differences import KNOWN_DIFFERENCES
from differential.matrix.inputs import CLASSES
from differential.matrix.valid import NOT_SENT, VALID
from differential.shown_by import SHOWN_BY
from differential.started import started_pair
from jvm.maven import class_path

if TYPE_CHECKING:
    from differential.scene import Pair

DOCUMENT = Path(__file__).parents[2] / "docs" / "compatibility.md"
BEGIN = "<!-- written by `make compatibility` -->"
END = "<!-- end of what `make compatibility` wrote -->"


def main() -> int:
    """Run every case, write the document; fails if an answer differed."""
    class_path("kafka")
    with tempfile.TemporaryDirectory() as directory, started_pair(Path(directory)) as pair:
        found = {str(each): each.run(pair) for each in CASES}
        text = "\n".join(block(pair))
    for name, lines in found.items():
        for line in lines:
            print(f"{name}: {line}", file=sys.stderr)
    if any(found.values()):
        return 1
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    return 0


def written() -> list[str]:
    """The lines between the marks."""
    return DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0].strip().splitlines()


def block(pair: Pair) -> list[str]:
    """All that is written, of a run in which every case was played."""
    return [*api_rows(pair), "", *class_rows(pair), "", *left_out()]


def api_rows(pair: Pair) -> list[str]:
    """One row for each API: what was compared."""
    rows = [
        "| API | Barnabas | compared | cases | generated | by hand | differs in | also shown by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for key, served in SERVED_APIS.items():
        api = ApiKey(key)
        cases = [each for each in CASES if each.api == api]
        counts = [pair.by_case[str(each)] for each in cases]
        generated = sum(each.by_class.total() for each in counts)
        by_hand = sum(each.answers for each in counts) - generated
        differs = sum(str(each) in KNOWN_DIFFERENCES for each in cases)
        cells = (
            api_row(api).name,
            spans(range(served.first_version, served.last_version + 1)).removeprefix("v"),
            spans(pair.versions(api)).removeprefix("v"),
            len(cases),
            generated,
            by_hand,
            f"{differs} cases" if differs else "none",
            SHOWN_BY[api],
        )
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return rows


def class_rows(pair: Pair) -> list[str]:
    """One row for each class of inputs: where it applies, and where the cell is empty and why."""
    found = by_class(pair)
    rows = [
        "| class of inputs | answers | APIs | empty cells | because |",
        "|---|---|---|---|---|",
    ]
    for name, reason in CLASSES.items():
        empty = [api_row(api).name for api in VALID if not found[api][name]]
        cells = (
            name,
            sum(each[name] for each in found.values()),
            len(VALID) - len(empty),
            ", ".join(sorted(empty)) or "none",
            reason if empty else "",
        )
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return rows


def by_class(pair: Pair) -> dict[ApiKey, Counter[str]]:
    """Generated answers of each API by the class of input."""
    found: dict[ApiKey, Counter[str]] = defaultdict(Counter)
    for each in CASES:
        found[each.api] += pair.by_case[str(each)].by_class
    return found


def left_out() -> list[str]:
    """Inputs that are not sent, by the reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for (api, label), reason in NOT_SENT.items():
        by_reason[reason].append(f"{api_row(api).name} `{label}`".replace("\n", " "))
    lines = ["Not sent, of the inputs above:", ""]
    return lines + [f"- {reason}: {', '.join(inputs)}." for reason, inputs in by_reason.items()]


if __name__ == "__main__":
    raise SystemExit(main())
