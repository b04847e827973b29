"""Facts from metrics listeners that no API of the protocol provides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.cli.top.metrics import fetch_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MetricFacts", "gather_metrics"]

_WAITING = "kafka_server_delayedoperationpurgatory_numdelayedoperations"
_DAMAGE = "barnabas_storage_damage_total"
_FAILED = "kafka_server_replicafetchermanager_failedpartitionscount"


@dataclass(slots=True)
class MetricFacts:
    """Facts by the listener's address; empty if no listener was named or none has such facts."""

    # Number of produce requests that wait for the high watermark.
    waiting_produces: dict[str, int] = field(default_factory=dict)
    # Number of partitions whose fetching failed, until their leadership changes.
    failed_fetches: dict[str, int] = field(default_factory=dict)
    # Kind of damage -> number of damaged places in the broker's files.
    damage: dict[str, dict[str, int]] = field(default_factory=dict)


def gather_metrics(addresses: Sequence[str]) -> MetricFacts:
    """Read the metrics listeners at the addresses (HOST:PORT).

    Raises:
        MetricsError: A listener cannot be read.
    """
    facts = MetricFacts()
    for address in addresses:
        found = fetch_metrics(address)
        waiting = sum(
            value
            for labels, value in found.get(_WAITING, {}).items()
            if dict(labels).get("delayedOperation") == "Produce"
        )
        if waiting:
            facts.waiting_produces[address] = int(waiting)
        failed = sum(found.get(_FAILED, {}).values())
        if failed:
            facts.failed_fetches[address] = int(failed)
        damage = {
            dict(labels)["kind"]: int(value)
            for labels, value in found.get(_DAMAGE, {}).items()
            if value
        }
        if damage:
            facts.damage[address] = damage
    return facts
