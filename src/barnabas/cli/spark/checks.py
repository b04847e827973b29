"""`barnabas spark check`: compares a job's options with those of `format("barnabas")`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.output import EXIT_FAILED, echo_json, fail, json_option
from barnabas.cli.common.printable import counted, echo
from barnabas.cli.common.tables import bad, echo_table, good, header_option, warn

if TYPE_CHECKING:
    from barnabas.spark.job_checks import Finding, JobUse


EXAMPLES = """\b
Examples:
  barnabas spark check job.py
"""
CHECK_EXAMPLES = """\b
Examples:
  barnabas spark check job.py                       before format("kafka") becomes "barnabas"
  barnabas spark check job.py --json
  barnabas spark check options.json --kind read

\b
FILE is a job in Python, which is read and not run, or a JSON object of options and values. SQL and
options that the job computes are not seen: `unchecked` names those that are visible.
The exit status is 1 if an option is refused. All options: docs/spark.md.
"""
_KINDS = ("read", "readStream", "write", "writeStream")


@click.group(epilog=EXAMPLES)
def spark() -> None:
    """Check jobs of Spark before they run."""


@spark.command("check", epilog=CHECK_EXAMPLES)
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--kind",
    type=click.Choice(_KINDS),
    help="What the options of a JSON file are for.  [default: readStream; write with topic]",
)
@header_option
@json_option()
def check(file: str, kind: str | None, as_json: bool) -> None:
    """Compare a job's options of Spark's Kafka connector with format("barnabas")."""
    from barnabas.spark.job_checks import JobError, Verdict, findings

    try:
        uses = _uses(Path(file), kind)
    except (JobError, OSError) as error:
        fail(f"{file}: {error}")
    found = [(use, findings(use)) for use in uses]
    if as_json:
        echo_json([_json(use, lines) for use, lines in found])
    else:
        _show(file, found)
    if any(line.verdict is Verdict.REFUSED for _, lines in found for line in lines):
        sys.exit(EXIT_FAILED)


def _uses(file: Path, kind: str | None) -> list[JobUse]:
    """Return the uses of a job or of a JSON file.

    Raises:
        JobError: the file is not of its format, or uses no topics.
    """
    from barnabas.spark.job_checks import JobError, uses_in

    text = file.read_text(errors="replace")
    if file.suffix == ".json":
        return [_from_json(text, kind)]
    if kind is not None:
        raise click.UsageError("--kind is for a JSON file; a job says it itself")
    uses = uses_in(text)
    if not uses:
        raise JobError('there is no .format("kafka") or .format("barnabas") in it')
    return uses


def _from_json(text: str, kind: str | None) -> JobUse:
    from barnabas.spark.job_checks import JobError, JobUse, Kind

    try:
        given = json.loads(text)
    except ValueError as error:
        raise JobError(f"this is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise JobError('expected an object such as {"subscribe": "orders"}')
    options: dict[str, str | None] = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in given.items()
    }
    guessed = "write" if "topic" in {name.lower() for name in options} else "readStream"
    return JobUse(Kind(kind or guessed), 1, options, mode="append", format="kafka")


def _show(file: str, found: list[tuple[JobUse, list[Finding]]]) -> None:
    from barnabas.spark.job_checks import Verdict

    marks = {Verdict.REFUSED: bad, Verdict.DIFFERS: warn, Verdict.UNCHECKED: warn}
    rows = [
        (
            f"{file}:{use.line}",
            use.kind.value,
            marks.get(line.verdict, good)(line.verdict.value),
            line.name,
            line.sentence,
        )
        for use, lines in found
        for line in lines
    ]
    echo_table(("place", "kind", "verdict", "option", "meaning"), rows)
    refused = sum(line.verdict is Verdict.REFUSED for _, lines in found for line in lines)
    if refused:
        echo(f"{counted(refused, 'option')} refused", err=True)


def _json(use: JobUse, lines: list[Finding]) -> dict[str, Any]:
    return {
        "line": use.line,
        "kind": use.kind.value,
        "findings": [
            {"option": line.name, "verdict": line.verdict.value, "sentence": line.sentence}
            for line in lines
        ],
    }
