"""`barnabas doctor`: report problems and their remedies."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.advice import connection_options
from barnabas.cli.common.output import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    bootstrap_option,
    config_file_option,
    echo_json,
    json_option,
    key_values,
    profile_option,
    property_option,
)
from barnabas.cli.common.tables import Styled, bad, echo_entry, echo_line, good, warn
from barnabas.cli.profiles.selection import select
from barnabas.runtime.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.cli.doctor.diagnosis import Diagnosis

EXAMPLES = """\b
Examples:
  barnabas doctor
  barnabas doctor broker.example:9092
  barnabas doctor /var/lib/barnabas
  barnabas doctor server.properties --json

\b
Exit status: 0 no problem, 1 a problem was found, 2 wrong usage. Notes are not problems. The command
ends within five seconds and reports brokers that have not answered. docs/troubles.md lists common
problems.
"""

_MARKS: dict[str, Callable[[object], Styled]] = {"ok": good, "note": warn, "wrong": bad}


@click.command(epilog=EXAMPLES)
@click.argument("target", required=False, metavar="[HOST:PORT|DIRECTORY|SERVER.PROPERTIES]")
@bootstrap_option("Brokers to examine.")
@property_option
@config_file_option
@profile_option
@click.option("-q", "--quiet", is_flag=True, help="Show only what is wrong.")
@json_option()
def doctor(
    target: str | None,
    bootstrap: str | None,
    properties: Sequence[str],
    config_file: str | None,
    profile: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Find problems of a broker, a data directory or a broker's configuration.

    Without a target, --bootstrap tells the brokers.
    """
    from barnabas.cli.doctor.diagnosis import Diagnosis

    diagnosis = Diagnosis()
    if target is not None and bootstrap is not None:
        raise click.UsageError("give either a target or --bootstrap")
    named = target or bootstrap
    chosen = select(named, tuple(properties), profile, config_file)
    wanted, given = chosen.bootstrap, key_values(chosen.properties, "--property")
    address = None if RealDisk().exists(wanted) else named
    try:
        with connection_options(bootstrap=address, config_file=config_file, profile=profile):
            _examine(wanted, given, diagnosis)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    if as_json:
        findings = [finding._asdict() for finding in diagnosis.findings]
        echo_json({"target": wanted, "well": diagnosis.is_healthy, "findings": findings})
    else:
        _show(diagnosis, quiet=quiet)
    if not diagnosis.is_healthy:
        sys.exit(EXIT_FAILED)


def _examine(target: str, properties: Mapping[str, str], diagnosis: Diagnosis) -> None:
    if RealDisk().is_directory(target):
        from barnabas.cli.doctor.directory import examine_directory

        examine_directory(target.rstrip("/") or "/", diagnosis)
    elif os.path.isfile(target):  # noqa: PTH113 - an inaccessible path is not a file
        from barnabas.cli.doctor.properties import examine_properties

        examine_properties(target, diagnosis)
    else:
        from barnabas.cli.doctor.addresses import examine_addresses

        # The command prints its own messages instead of the client's log.
        logging.getLogger("barnabas").addHandler(logging.NullHandler())
        examine_addresses(target, properties, diagnosis)


def _show(diagnosis: Diagnosis, *, quiet: bool) -> None:
    for finding in diagnosis.findings:
        if quiet and finding.verdict != "wrong":
            continue
        echo_entry(_MARKS[finding.verdict](finding.verdict), finding.what, finding.remedy)
    if diagnosis.is_healthy:
        if not quiet:
            echo_line(good("no problems found"))
        return
    count = sum(finding.verdict == "wrong" for finding in diagnosis.findings)
    echo_line(bad(f"{count} problem{'' if count == 1 else 's'}"))
