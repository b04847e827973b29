"""Examine a cluster by the addresses of its brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.config import ClientConfig
    from barnabas.runtime.tls.tls_options import TlsOptions

__all__ = ["DOCTOR_TIMEOUT_S", "examine_addresses"]

# Default of --timeout.
DOCTOR_TIMEOUT_S = 10.0

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
        diagnosis: Receives the findings.
        timeout_s: Limit of all probes and requests together (s). The findings say what is not
            examined then.

    Raises:
        click.UsageError: The addresses or the settings are malformed.
    """
    from barnabas.cli.doctor.examination import Examination
    from barnabas.cli.doctor.probe import Probes
    from barnabas.client.config import ClientConfig
    from barnabas.client.errors import ClientConfigError

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
    examination = Examination(Probes(addresses, is_thorough=True, tls=tls), limit_s)
    examination.start(tls if is_usable else None, config if is_usable else None)
    examination.finish(diagnosis)


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
