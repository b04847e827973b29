"""Diagnosis of clients that use most of the bandwidth, by the brokers' metrics listeners."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.units import size
from barnabas.cli.load.metrics import BrokerMetrics, MetricsError, scrape
from barnabas.cli.load.rates import rates_of_clients

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.cli.load.rates import ClientRates
    from barnabas.server.listeners.client_traffic import ClientKey

# A client is reported if it writes at least this many bytes per second, and this part of the bytes
# that all clients write.
_BYTES_MIN = 1 << 20
_PART_MIN = 0.5
# Time over which rates are measured, at least (s).
_WINDOW_S = 1.0


class ClientExamination:
    """Measures what each client writes between two scrapes.

    Args:
        addresses: HOST:PORT of metrics listeners; they are scraped now for the first time.
        diagnosis: Gets the findings.
    """

    def __init__(self, addresses: Iterable[str], diagnosis: Diagnosis) -> None:
        self._diagnosis = diagnosis
        self._began_s = time.monotonic()
        self._addresses = list(addresses)
        self._before = self._scraped()

    def finish(self) -> None:
        """Scrape again, and report the client that writes most."""
        if not self._before:
            return
        time.sleep(max(0.0, self._began_s + _WINDOW_S - time.monotonic()))
        seconds = time.monotonic() - self._began_s
        after = self._scraped()
        report_clients(rates_of_clients(self._before, after, seconds), self._diagnosis)

    def _scraped(self) -> dict[str, BrokerMetrics]:
        found: dict[str, BrokerMetrics] = {}
        for address in self._addresses:
            try:
                found |= scrape(address)
            except MetricsError as error:
                self._diagnosis.unexamined(str(error))
        return found


def report_clients(clients: Mapping[ClientKey, ClientRates], diagnosis: Diagnosis) -> None:
    """Report a client that writes most of all bytes."""
    if not clients:
        return
    client, most = max(clients.items(), key=lambda item: item[1].bytes_in)
    part = most.bytes_in / max(1.0, sum(each.bytes_in for each in clients.values()))
    if most.bytes_in < _BYTES_MIN or part < _PART_MIN:
        return
    diagnosis.note(
        f"client id {client.client_id} of {client.principal} writes {size(most.bytes_in)}/s, "
        f"{part:.0%} of what all clients write",
        f"if that is too much, limit it: {Advice.LIMIT_CLIENT.text(client_id=client.client_id)}",
    )
