"""Writes the numbers of comparisons into docs/compatibility.md: `make compatibility`.

Runs the generated cases against both brokers, counts the manual cases, and replaces the text
between the two marks. The text contains only values that are the same in each run.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.protocol.api_keys import api_row
from barnabas.protocol.api_table import ApiKey
from barnabas.server.dispatch.served_apis import SERVED_APIS
from differential.all_cases import CASES
from differential.broker_pair import started_pair
from differential.case import spans
from differential.cases.matrix import GENERATED
from differential.matrix.excluded_inputs import NOT_SENT
from differential.matrix.inputs import CLASSES
from differential.matrix.valid_requests import VALID
from differential.shown_by import SHOWN_BY
from jvm.maven import class_path

if TYPE_CHECKING:
    from differential.scene import Pair

DOCUMENT = Path(__file__).parents[2] / "docs" / "compatibility.md"
BEGIN = "<!-- written by `make compatibility` -->"
END = "<!-- end of what `make compatibility` wrote -->"


def main() -> int:
    """Run the generated cases and write the document; fail if a response differs."""
    class_path("kafka")
    differed = False
    with tempfile.TemporaryDirectory() as directory, started_pair(Path(directory)) as pair:
        for each in GENERATED:
            for line in each.run(pair):
                print(f"{each}: {line}", file=sys.stderr)
                differed = True
        text = "\n".join(block(pair))
    if differed:
        return 1
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
    return 0


def written() -> list[str]:
    """Return the lines between the marks."""
    return DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0].strip().splitlines()


def block(pair: Pair) -> list[str]:
    """Return the generated text, after a run of all generated cases."""
    return [*api_rows(pair), "", *class_rows(pair), "", *excluded_inputs()]


def api_rows(pair: Pair) -> list[str]:
    """Return one row for each API: the numbers of comparisons."""
    rows = [
        "| API | Barnabas | compared | generated | by hand | × versions | also shown by |",
        "|---|---|---|---|---|---|---|",
    ]
    found = by_class(pair)
    for key, served in SERVED_APIS.items():
        api = ApiKey(key)
        versions = pair.versions(api)
        by_hand = [each for each in CASES if each.api == api and each not in GENERATED]
        cells = (
            api_row(api).name,
            spans(range(served.first_version, served.last_version + 1)).removeprefix("v"),
            spans(versions).removeprefix("v"),
            found[api].total(),
            len(by_hand),
            sum(len(each.versions.intersection(versions) or versions) for each in by_hand),
            SHOWN_BY[api],
        )
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return rows


def class_rows(pair: Pair) -> list[str]:
    """Return one row for each class of inputs: the APIs with and without such inputs."""
    found = by_class(pair)
    rows = [
        "| class of inputs | responses | APIs | APIs without such inputs | reason |",
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
    """Count the responses to generated requests of each API by the class of input."""
    found: dict[ApiKey, Counter[str]] = defaultdict(Counter)
    for each in GENERATED:
        found[each.api] += pair.by_case[str(each)].by_class
    return found


def excluded_inputs() -> list[str]:
    """Return lines with the inputs that are not sent, grouped by reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for (api, label), reason in NOT_SENT.items():
        by_reason[reason].append(f"{api_row(api).name} `{label}`".replace("\n", " "))
    lines = ["Inputs of these classes that are not sent:", ""]
    return lines + [f"- {reason}: {', '.join(inputs)}." for reason, inputs in by_reason.items()]


if __name__ == "__main__":
    raise SystemExit(main())
