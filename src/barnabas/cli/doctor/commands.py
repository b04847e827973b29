"""`barnabas doctor`: say what is wrong, and what to do about it."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import (
    DEFAULT_BOOTSTRAP,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    echo_json,
    key_values,
    property_option,
)
from barnabas.cli.common.tables import Styled, bad, echo_entry, echo_line, good, warn
from barnabas.runtime.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.cli.doctor.diagnosis import Diagnosis

EXAMPLES = """\b
Examples:
  barnabas doctor
  barnabas doctor broker.example:9092
  barnabas doctor /var/lib/barnabas
  barnabas doctor server.properties --json

\b
Exit status: 0 nothing is wrong, 1 something is, 2 wrong usage. Notes are no failure. Ends within
five seconds: what does not answer by then is reported. docs/troubles.md has a table of troubles.
"""

_MARKS: dict[str, Callable[[object], Styled]] = {"ok": good, "note": warn, "wrong": bad}
# What does not answer is a finding: it is not waited for.
_CLIENT_DEFAULTS = {
    "request.timeout.ms": "1800",
    "default.api.timeout.ms": "1800",
    "socket.connection.setup.timeout.ms": "1000",
}
# Limit of all requests together (s). The output says if the examination is incomplete.
_LIMIT_S = 3.6


@click.command(epilog=EXAMPLES)
@click.argument("target", required=False, metavar="[HOST:PORT|DIRECTORY|SERVER.PROPERTIES]")
@property_option
@click.option("-q", "--quiet", is_flag=True, help="Show only what is wrong.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(target: str | None, properties: Sequence[str], quiet: bool, as_json: bool) -> None:
    """Find out what is wrong with a broker, a data directory or a broker's configuration.

    Without a target: the broker at BARNABAS_BOOTSTRAP, else at 127.0.0.1:9092.
    """
    from barnabas.cli.doctor.diagnosis import Diagnosis

    diagnosis = Diagnosis()
    wanted = target or os.environ.get("BARNABAS_BOOTSTRAP") or DEFAULT_BOOTSTRAP
    try:
        _examine(wanted, properties, diagnosis)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    if as_json:
        findings = [finding._asdict() for finding in diagnosis.findings]
        echo_json({"target": wanted, "well": diagnosis.is_healthy, "findings": findings})
    else:
        _show(diagnosis, quiet=quiet)
    if not diagnosis.is_healthy:
        sys.exit(EXIT_FAILED)


def _examine(target: str, properties: Sequence[str], diagnosis: Diagnosis) -> None:
    if RealDisk().is_directory(target):
        from barnabas.cli.doctor.directory import examine_directory

        examine_directory(target.rstrip("/") or "/", diagnosis)
    elif os.path.isfile(target):  # noqa: PTH113 - what cannot be looked at is none
        from barnabas.cli.doctor.properties import examine_properties

        examine_properties(target, diagnosis)
    else:
        _examine_addresses(target, properties, diagnosis)


def _examine_addresses(target: str, properties: Sequence[str], diagnosis: Diagnosis) -> None:
    from barnabas.cli.doctor.address import examine_address
    from barnabas.cli.doctor.cluster_examination import ClusterExamination
    from barnabas.cli.doctor.probe import Probes
    from barnabas.client.config import ClientConfig
    from barnabas.client.errors import ClientConfigError

    try:
        addresses = ClientConfig.parse({"bootstrap.servers": target}).bootstrap_servers
    except ClientConfigError:
        raise click.UsageError(
            f"{target} is no existing file or directory, and not HOST:PORT"
        ) from None
    config = {**_CLIENT_DEFAULTS, **key_values(properties, "--property")}
    try:
        ClientConfig.parse({"bootstrap.servers": target, **config})
    except ClientConfigError as error:
        raise click.UsageError(str(error)) from None
    # The command prints its own messages instead of the client's log.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
    deadline = time.monotonic() + _LIMIT_S
    probes = Probes(addresses, is_thorough=True)
    examination = None
    if probes.first_kafka() is not None:
        examination = ClusterExamination(probes, config)
        examination.start()
    for address in probes.addresses:
        examine_address(address, probes, diagnosis)
    if examination is not None:
        examination.finish(max(0.0, deadline - time.monotonic()), diagnosis)


def _show(diagnosis: Diagnosis, *, quiet: bool) -> None:
    for finding in diagnosis.findings:
        if quiet and finding.verdict != "wrong":
            continue
        echo_entry(_MARKS[finding.verdict](finding.verdict), finding.what, finding.remedy)
    if diagnosis.is_healthy:
        if not quiet:
            echo_line(good("nothing is wrong"))
        return
    count = sum(finding.verdict == "wrong" for finding in diagnosis.findings)
    echo_line(bad(f"{count} thing{'' if count == 1 else 's'} wrong"))
