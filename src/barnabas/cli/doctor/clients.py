"""Diagnosis of clients that use most of the bandwidth, by the brokers' metrics listeners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.units import size
from barnabas.cli.load.metrics import MetricsError, scrape, sum_of_clients

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.cli.load.metrics import ClientMetrics, ClientName

# A client is reported if it writes at least this many bytes per second, and this part of the bytes
# that all measured clients write.
_BYTES_MIN = 1 << 20
_PART_MIN = 0.5


def examine_clients(addresses: Iterable[str], diagnosis: Diagnosis) -> None:
    """Report the client that writes most, as the brokers with these metrics listeners see it.

    Args:
        addresses: HOST:PORT of metrics listeners.
    """
    found = []
    for address in addresses:
        try:
            found.append(scrape(address))
        except MetricsError as error:
            diagnosis.unexamined(str(error))
    if found:
        report_clients(sum_of_clients(found), diagnosis)


def report_clients(clients: Mapping[ClientName, ClientMetrics], diagnosis: Diagnosis) -> None:
    """Report a client that writes most of all bytes, or that brokers measure no client."""
    if not clients:
        diagnosis.note(
            "the brokers measure no client, because no client has a quota",
            f"to measure all clients, without a limit that they reach: "
            f"{Advice.MEASURE_CLIENTS.text()}",
        )
        return
    name, most = max(clients.items(), key=lambda item: item[1].bytes_in)
    part = most.bytes_in / max(1.0, sum(each.bytes_in for each in clients.values()))
    if most.bytes_in < _BYTES_MIN or part < _PART_MIN:
        return
    user = f" of user {name.user}" if name.user else ""
    writer = f"client id {name.client_id}{user}" if name.client_id else f"user {name.user}"
    diagnosis.note(
        f"{writer} writes {size(most.bytes_in)}/s, {part:.0%} of what all measured clients write",
        f"if that is too much, limit it: {Advice.LIMIT_CLIENT.text(client_id=name.client_id)}"
        if name.client_id
        else f"if that is too much, lower its producer_byte_rate: {Advice.LIST_QUOTAS.text()}",
    )
