"""`barnabas doctor`: report problems and their remedies."""

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
    config_file_option,
    echo_json,
    key_values,
    property_option,
)
from barnabas.cli.common.tables import Styled, bad, echo_entry, echo_line, good, warn
from barnabas.cli.profiles.selection import file_settings
from barnabas.runtime.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.config import ClientConfig
    from barnabas.runtime.tls.tls_options import TlsOptions

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
# A broker that does not answer is a finding, so the timeouts are short.
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
@config_file_option
@click.option("-q", "--quiet", is_flag=True, help="Show only what is wrong.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(
    target: str | None,
    properties: Sequence[str],
    config_file: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Find problems of a broker, a data directory or a broker's configuration.

    The default target is the broker at BARNABAS_BOOTSTRAP, else at 127.0.0.1:9092.
    """
    from barnabas.cli.doctor.diagnosis import Diagnosis

    diagnosis = Diagnosis()
    settings = file_settings(config_file)
    of_file = settings.pop("bootstrap.servers", None)
    wanted = target or of_file or os.environ.get("BARNABAS_BOOTSTRAP") or DEFAULT_BOOTSTRAP
    given = {**settings, **key_values(properties, "--property")}
    try:
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
        _examine_addresses(target, properties, diagnosis)


def _examine_addresses(target: str, properties: Mapping[str, str], diagnosis: Diagnosis) -> None:
    from barnabas.cli.doctor.address import examine_address
    from barnabas.cli.doctor.cluster_examination import ClusterExamination
    from barnabas.cli.doctor.probe import Probes
    from barnabas.client.config import ClientConfig
    from barnabas.client.errors import ClientConfigError

    try:
        addresses = ClientConfig.parse({"bootstrap.servers": target}).bootstrap_servers
    except ClientConfigError:
        raise click.UsageError(
            f"{target} is neither an existing file or directory nor HOST:PORT"
        ) from None
    config = {**_CLIENT_DEFAULTS, **properties}
    try:
        checked = ClientConfig.parse({"bootstrap.servers": target, **config})
    except ClientConfigError as error:
        raise click.UsageError(str(error)) from None
    # The command prints its own messages instead of the client's log.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
    deadline = time.monotonic() + _LIMIT_S
    tls, is_usable = _tls_options(checked, diagnosis)
    probes = Probes(addresses, is_thorough=True, with_tls=tls is not None)
    examination = None
    if is_usable and probes.first_kafka() is not None:
        examination = ClusterExamination(probes, config)
        examination.start()
    for address in probes.addresses:
        examine_address(address, probes, diagnosis, tls if is_usable else None)
    if examination is not None:
        examination.finish(max(0.0, deadline - time.monotonic()), diagnosis)


def _tls_options(config: ClientConfig, diagnosis: Diagnosis) -> tuple[TlsOptions | None, bool]:
    """Return the TLS options of the client, and whether its key stores can be used.

    Returns:
        None instead of options for a client without TLS.
    """
    if not config.security_protocol.endswith("SSL"):
        return None, True
    # Imported only for clients with TLS.
    from barnabas.cli.doctor.certificates import examine_certificate
    from barnabas.client.tls_config import client_tls_options
    from barnabas.runtime.tls.contexts import client_context
    from barnabas.runtime.tls.tls_options import TlsOptionsError

    options = client_tls_options(config)
    try:
        context = client_context(options)
    except TlsOptionsError as error:
        key = f"ssl.{error.option}"
        diagnosis.wrong(f"the client's {key} cannot be used: {error.reason}", f"correct {key}")
        return options, False
    if context.own_certificate is not None:
        examine_certificate(context.own_certificate, "the client", (), diagnosis)
    return options, True


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
