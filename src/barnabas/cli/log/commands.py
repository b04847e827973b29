"""`barnabas log dump`, `verify` and `repair`, for the files of a log.

Dump and verify also work while a broker runs; repair needs a stopped broker.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import EXIT_FAILED, json_option
from barnabas.cli.common.printable import echo, json_line
from barnabas.cli.common.progress import BYTES, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.cli.log.segment_files import FileFinding

EXAMPLES = """\b
Examples:
  barnabas log dump data/flights-0
  barnabas log dump data/flights-0/00000000000000000000.log --records
  barnabas log dump data/__consumer_offsets-7 --json
  barnabas log dump data/__cluster_metadata-0 -n 5
  barnabas log dump data/__remote_log_metadata-3
  barnabas log verify data
  barnabas log verify data/flights-0 --deep --json
  barnabas log repair data

\b
Dump and verify only read, and work while a broker runs. Exit status: 0 no damage, 1 damage was
found, 2 wrong usage.
"""

DUMP_EXAMPLES = """\b
Examples:
  barnabas log dump data/flights-0/00000000000000000000.index
  barnabas log dump data/flights-0 --records --from 1000 -n 3
  barnabas log dump data/recovery-point-offset-checkpoint data/meta.properties

\b
Accepts segments (.log), indexes (.index .timeindex .txnindex), producer snapshots (.snapshot),
metadata snapshots (.checkpoint), the checkpoint files, quorum-state, meta.properties and
partition.metadata. Records of internal topics are decoded.
"""

VERIFY_EXAMPLES = """\b
Examples:
  barnabas log verify data
  barnabas log verify data/flights-0 --deep

\b
Checks the CRC of every batch, that offsets increase, that index entries point to the right batches,
and that leader epochs, snapshots and checkpoints agree with the batches.
"""


REPAIR_EXAMPLES = """\b
Examples:
  barnabas log repair data
  barnabas log repair data --apply
  barnabas log repair data/flights-0 --json

\b
For a stopped broker whose partitions have no other replicas. Without --apply, nothing is changed:
the output lists the repairs and the lost offsets. A flipped bit is corrected if the checksum
identifies it. A batch that cannot be saved is replaced by an empty batch with the same offsets, so
later batches are kept. An incomplete end is cut off. Damaged indexes are renamed, and the next
start rebuilds them. The metadata log is truncated at the damage. Replaced files are kept with the
suffix .damaged. Exit status: 0 no repair is necessary, or all repairs are done; 1 repairs are
necessary, or the directory is in use; 2 wrong usage.
"""

# The kinds of payloads that `dump` decodes.
_KINDS = ("plain", "metadata", "groups", "transactions", "share", "remote")


@click.group(epilog=EXAMPLES)
def log() -> None:
    """Show, check and repair the files of a log."""


@log.command("dump", epilog=DUMP_EXAMPLES)
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True), metavar="PATH...")
@click.option(
    "-r/-R",
    "--records/--no-records",
    default=None,
    help="Show records too.  [default: only of internal topics]",
)
@click.option(
    "--as",
    "kind",
    type=click.Choice(_KINDS),
    help="Decode records as this type.  [default: by topic name]",
)
@click.option(
    "--from",
    "first_offset",
    type=click.IntRange(0),
    default=0,
    metavar="OFFSET",
    help="Begin with the batch that contains this offset, or with the next one.",
)
@click.option(
    "-n", "--max-batches", "limit", type=click.IntRange(1), help="Show at most N batches."
)
@json_option("Print one JSON object per line.")
def dump(
    paths: Sequence[str],
    records: bool | None,
    kind: str | None,
    first_offset: int,
    limit: int | None,
    as_json: bool,
) -> None:
    """Show the content of log files, or of all segments of a partition's directory."""
    from barnabas.cli.log.dump import Dumper, DumpOptions

    dumper = Dumper(DumpOptions(records, kind, first_offset, limit, as_json))
    for path in paths:
        dumper.dump(path)
    dumper.finish()
    # A closed reader shows here at the latest, where the group of all commands handles it.
    sys.stdout.flush()
    if dumper.failed:
        sys.exit(EXIT_FAILED)


@log.command("verify", epilog=VERIFY_EXAMPLES)
@click.argument("path", type=click.Path(exists=True, file_okay=False), metavar="DIRECTORY")
@click.option("--deep", is_flag=True, help="Decompress and decode every record too.")
@json_option("Print one JSON object.")
def verify(path: str, deep: bool, as_json: bool) -> None:
    """Check a data directory, or one partition's, for damage.

    Exit status 1: damage was found. The output includes remedies.
    """
    from barnabas.cli.common.tables import bad, echo_entry, echo_line, good, warn
    from barnabas.cli.log import verify_directory
    from barnabas.cli.log.segment_files import FileFindings

    findings = FileFindings()
    with progress(BYTES, lambda: verify_directory.bytes_to_read(path)) as advance:
        found = verify_directory.verify(path, deep=deep, advance=advance, findings=findings)
    batches = sum(facts.batches for facts in found.partitions.values())
    if as_json:
        listed = [_finding_json(finding) for finding in findings.all]
        counts = {"partitions": len(found.partitions), "batches": batches}
        echo(json_line({**counts, "in_use": found.is_running, "findings": listed}))
    else:
        for finding in findings.all:
            mark = bad("wrong") if finding.is_problem else warn("note")
            echo_entry(mark, f"{finding.path}: {finding.what}", finding.remedy)
        count = len(findings.problems)
        verdict = bad(f"{count} wrong") if count else good("nothing wrong")
        echo_line(verdict, f" in {len(found.partitions)} partitions, {batches} batches")
    if findings.problems:
        sys.exit(EXIT_FAILED)


@log.command("repair", epilog=REPAIR_EXAMPLES)
@click.argument("path", type=click.Path(exists=True, file_okay=False), metavar="DIRECTORY")
@click.option("--apply", is_flag=True, help="Repair the files.  [default: only show the repairs]")
@json_option("Print one JSON object.")
def repair(path: str, apply: bool, as_json: bool) -> None:
    """Recover the intact data of damaged files; the broker must be stopped."""
    from barnabas.cli.common.tables import bad, echo_entry, echo_line, good, warn
    from barnabas.cli.log import repair as repairs
    from barnabas.cli.log.segment_files import is_locked
    from barnabas.storage.files.log_directory import LOCK_FILE

    if is_locked(f"{path}/{LOCK_FILE}") or is_locked(f"{path}/../{LOCK_FILE}"):
        raise click.ClickException(f"{path} is in use: stop its broker first")
    steps = repairs.repair(path, apply=apply)
    lost = sum(step.records_lost for step in steps)
    if as_json:
        listed = [{**asdict(step), "records_lost": step.records_lost} for step in steps]
        echo(json_line({"applied": apply, "records_lost": lost, "steps": listed}))
    else:
        for step in steps:
            mark = warn("lost") if step.records_lost else good("saved")
            offsets = ""
            if step.first_lost is not None:
                offsets = f"; offsets {step.first_lost} to {step.last_lost} are lost"
            echo_entry(mark, f"{step.path}: {step.problem}", f"{step.action}{offsets}")
        done = "repaired" if apply else "to repair (nothing was changed; use --apply to repair)"
        verdict = bad(f"{len(steps)} {done}") if steps else good("nothing to repair")
        echo_line(verdict, f", at most {lost} records lost" if lost else "")
    if steps and not apply:
        sys.exit(EXIT_FAILED)


def _finding_json(finding: FileFinding) -> dict[str, object]:
    return {
        "path": finding.path,
        "what": finding.what,
        "remedy": finding.remedy,
        "wrong": finding.is_problem,
    }
