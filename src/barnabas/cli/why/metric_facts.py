"""What metrics listeners tell that no API of the protocol does."""

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
    """By the listener's address; empty where none was named, or none has any."""

    # Produce requests that wait for the high watermark.
    waiting_produces: dict[str, int] = field(default_factory=dict)
    # Partitions whose fetching failed and is given up until leadership changes.
    failed_fetches: dict[str, int] = field(default_factory=dict)
    # Damaged places that the broker has found in its files, by their kind.
    damage: dict[str, dict[str, int]] = field(default_factory=dict)


def gather_metrics(addresses: Sequence[str]) -> MetricFacts:
    """Read the listeners at HOST:PORT.

    Raises:
        MetricsError: one cannot be read.
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
