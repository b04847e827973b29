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
    EXIT_INCOMPLETE,
    bootstrap_option,
    config_file_option,
    echo_json,
    json_option,
    key_values,
    metrics_option,
    profile_option,
    property_option,
)
from barnabas.cli.common.profiles import select
from barnabas.cli.common.tables import Styled, bad, echo_entry, echo_line, good, warn
from barnabas.cli.common.units import Seconds
from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientConfigError
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.process import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.runtime.tls.tls_options import TlsOptions

EXAMPLES = """\b
Examples:
  barnabas doctor
  barnabas doctor broker.example:9092
  barnabas doctor /var/lib/barnabas
  barnabas doctor server.properties --json
  barnabas doctor --metrics 127.0.0.1:9308

\b
Exit status: 0 no problem, 1 a problem was found, 2 wrong usage, 3 no problem was found but not
everything could be examined. Notes are not problems. The command ends within --timeout and reports
what it has not examined. docs/troubles.md lists common problems.
"""

_MARKS: dict[str, Callable[[object], Styled]] = {"ok": good, "note": warn, "wrong": bad}
# Default of --timeout.
DOCTOR_TIMEOUT_S = 10.0


@click.command(epilog=EXAMPLES)
@click.argument("target", required=False, metavar="[HOST:PORT|DIRECTORY|SERVER.PROPERTIES]")
@bootstrap_option("Brokers to examine.")
@property_option
@config_file_option
@profile_option
@click.option(
    "--timeout",
    type=Seconds(1, 600),
    default=DOCTOR_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="End the examination of a cluster after this time: all connections and requests together. "
    "The output says what was not examined, and the exit status is 3 if nothing was wrong so far.",
)
@metrics_option
@click.option("-q", "--quiet", is_flag=True, help="Show only what is wrong.")
@json_option()
def doctor(
    target: str | None,
    bootstrap: str | None,
    properties: Sequence[str],
    config_file: str | None,
    profile: str | None,
    timeout: float,
    metrics: Sequence[str],
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
            if metrics:
                # Imported only for users of metrics.
                from barnabas.cli.doctor.clients import ClientExamination

                clients = ClientExamination(metrics, diagnosis)
                _examine(wanted, given, timeout, diagnosis)
                clients.finish()
            else:
                _examine(wanted, given, timeout, diagnosis)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    if as_json:
        findings = [finding._asdict() for finding in diagnosis.findings]
        echo_json(
            {
                "target": wanted,
                "well": diagnosis.is_healthy and diagnosis.is_complete,
                "complete": diagnosis.is_complete,
                "machines": [machine.as_json() for machine in diagnosis.machines],
                "findings": findings,
            }
        )
    else:
        _show(diagnosis, quiet=quiet)
    if not diagnosis.is_healthy:
        sys.exit(EXIT_FAILED)
    if not diagnosis.is_complete:
        sys.exit(EXIT_INCOMPLETE)


def _examine(
    target: str, properties: Mapping[str, str], timeout_s: float, diagnosis: Diagnosis
) -> None:
    if RealDisk().is_directory(target):
        from barnabas.cli.doctor.directory import examine_directory

        examine_directory(target.rstrip("/") or "/", diagnosis)
    elif os.path.isfile(target):  # noqa: PTH113 - an inaccessible path is not a file
        from barnabas.cli.doctor.directory import examine_properties

        examine_properties(target, diagnosis)
    else:
        # The command prints its own messages instead of the client's log.
        logging.getLogger("barnabas").addHandler(logging.NullHandler())
        examine_addresses(target, properties, diagnosis, timeout_s)


def _show(diagnosis: Diagnosis, *, quiet: bool) -> None:
    for finding in diagnosis.findings:
        if quiet and finding.verdict != "wrong" and not finding.is_unexamined:
            continue
        echo_entry(_MARKS[finding.verdict](finding.verdict), finding.what, finding.remedy)
    if diagnosis.is_healthy and not diagnosis.is_complete:
        echo_line(warn("no problems found, but not everything was examined"))
        return
    if diagnosis.is_healthy:
        if not quiet:
            echo_line(good("no problems found"))
        return
    count = sum(finding.verdict == "wrong" for finding in diagnosis.findings)
    echo_line(bad(f"{count} problem{'' if count == 1 else 's'}"))


# Time that the command needs in addition to that of the examination (s).
_RESERVE_S = 1.4


def examine_addresses(
    target: str,
    properties: Mapping[str, str],
    diagnosis: Diagnosis,
    timeout_s: float = DOCTOR_TIMEOUT_S,
) -> None:
    """Examine the brokers at the addresses and their cluster.

    Args:
        target: HOST:PORT[,...].
        properties: Settings of the client.
        timeout_s: Limit of all probes and requests together (s). The findings say what is not
            examined then.

    Raises:
        click.UsageError: The addresses or the settings are malformed.
    """
    from barnabas.cli.doctor.address import examine_all
    from barnabas.cli.doctor.probe import Probes

    try:
        addresses = ClientConfig.parse({"bootstrap.servers": target}).bootstrap_servers
    except ClientConfigError:
        raise click.UsageError(
            f"{target} is neither an existing file or directory nor HOST:PORT"
        ) from None
    limit_s = max(1.0, timeout_s - _RESERVE_S)
    # A broker that does not answer is a finding, so the timeouts are short.
    request_ms = str(round(1000 * limit_s / 4))
    config = {
        "request.timeout.ms": request_ms,
        "default.api.timeout.ms": request_ms,
        "socket.connection.setup.timeout.ms": "1000",
        **properties,
    }
    try:
        checked = ClientConfig.parse({"bootstrap.servers": target, **config})
    except ClientConfigError as error:
        raise click.UsageError(str(error)) from None
    tls, is_usable = _tls_options(checked, diagnosis)
    probes = Probes(addresses, is_thorough=True, tls=tls)
    examine_all(
        probes, tls if is_usable else None, config if is_usable else None, limit_s, diagnosis
    )


def _tls_options(config: ClientConfig, diagnosis: Diagnosis) -> tuple[TlsOptions | None, bool]:
    """Return the TLS options of the client, and whether its key stores can be used.

    Returns:
        None instead of options for a client without TLS.
    """
    from barnabas.cli.doctor.probe import tls_of

    options = tls_of(config)
    if options is None:
        return None, True
    # Imported only for clients with TLS.
    from barnabas.cli.doctor.certificates import examine_certificate
    from barnabas.runtime.tls.contexts import client_context
    from barnabas.runtime.tls.tls_options import TlsOptionsError

    try:
        context = client_context(options)
    except TlsOptionsError as error:
        key = f"ssl.{error.option}"
        diagnosis.wrong(f"the client's {key} cannot be used: {error.reason}", f"correct {key}")
        return options, False
    if context.own_certificate is not None:
        examine_certificate(context.own_certificate, "the client", (), diagnosis)
    return options, True
