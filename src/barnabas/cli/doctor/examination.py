"""Parts of an examination in separate threads, so that no broker can block the command."""

from __future__ import annotations

import threading
import time
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

from barnabas.cli.doctor.address import examine_address, examine_cluster
from barnabas.cli.doctor.diagnosis import Diagnosis
from barnabas.client.errors import ClientError
from barnabas.client.facade import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.cli.doctor.probe import Address, Probes
    from barnabas.runtime.tls.tls_options import TlsOptions

__all__ = ["Examination"]


class Examination:
    """Examines addresses, and the cluster behind the first one at which a broker answers.

    Args:
        probes: The probes of the addresses.
        limit_s: Limit of the whole examination (s).
    """

    def __init__(self, probes: Probes, limit_s: float) -> None:
        self._probes = probes
        self._limit_s = limit_s
        self._deadline = time.monotonic() + limit_s
        self._parts: list[_Part] = []

    def start(self, tls: TlsOptions | None, config: Mapping[str, str] | None) -> None:
        """Start the parts.

        Args:
            tls: TLS options of the client; None for a client without usable options.
            config: Configuration of the client; None to examine the addresses only.
        """
        self._parts.append(_Part(partial(_examine_addresses, self._probes, tls)))
        if config is not None:
            self._parts.append(_Part(partial(_examine_cluster, self._probes, config)))
        for part in self._parts:
            part.start()

    def finish(self, diagnosis: Diagnosis) -> None:
        """Wait for the parts and add their findings; abandon the parts after the limit.

        Raises:
            Exception: The error that ended a part.
        """
        are_late = False
        for part in self._parts:
            part.join(max(0.0, self._deadline - time.monotonic()))
            are_late |= part.is_alive()
            if part.error is not None:
                raise part.error
            diagnosis.add(part.diagnosis)
        if are_late:
            diagnosis.unexamined(
                f"the rest: the brokers did not answer all requests within {self._limit_s:.1f} s",
                "repair the reported problems first, then run this command again with a longer "
                "time (--timeout)",
            )


class _Part(threading.Thread):
    """A thread with findings of its own."""

    def __init__(self, examine: Callable[[Diagnosis], None]) -> None:
        super().__init__(name="barnabas-doctor", daemon=True)
        self._examine = examine
        self.diagnosis = Diagnosis()
        self.error: Exception | None = None
        # The options that the advised commands need.
        self._context = copy_context()

    def run(self) -> None:
        """Examine; keep an unexpected error for the command."""
        try:
            self._context.run(self._examine, self.diagnosis)
        except Exception as error:  # noqa: BLE001 - raised again by `Examination.finish`
            self.error = error


def _examine_addresses(probes: Probes, tls: TlsOptions | None, diagnosis: Diagnosis) -> None:
    for address in probes.addresses:
        examine_address(address, probes, diagnosis, tls)


def _examine_cluster(probes: Probes, config: Mapping[str, str], diagnosis: Diagnosis) -> None:
    first = probes.first_kafka()
    if first is None:
        return
    with Client(_text(first), **config) as client:
        examine_cluster(client, *first, diagnosis)
        _examine_ids(probes, config, client, diagnosis)


def _examine_ids(
    probes: Probes, config: Mapping[str, str], client: Client, diagnosis: Diagnosis
) -> None:
    """Report addresses that belong to another cluster than the first address."""
    first = probes.first_kafka()
    if first is None or len(probes.addresses) == 1:
        return
    try:
        known = client.describe_cluster().cluster_id
    except ClientError as error:
        diagnosis.unexamined(f"whether all addresses are of one cluster: {error}")
        return
    for address in probes.addresses:
        if address == first or probes.reply(address).peer is not probes.wanted:
            continue
        try:
            with Client(_text(address), **config) as other:
                found = other.describe_cluster().cluster_id
        except ClientError as error:
            diagnosis.unexamined(f"the cluster of {_text(address)}: {error}")
            continue
        if found != known:
            diagnosis.wrong(
                f"{_text(address)} belongs to cluster {found}, but {_text(first)} "
                f"belongs to cluster {known}",
                "list only brokers of one cluster in bootstrap.servers",
            )


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
