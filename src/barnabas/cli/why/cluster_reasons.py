"""What concerns the cluster as a whole, and so everything in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.why.reason import Reason, note, wrong

if TYPE_CHECKING:
    from barnabas.cli.why.facts import BrokerFacts

__all__ = ["cluster_reasons"]


def cluster_reasons(brokers: BrokerFacts) -> list[Reason]:
    """Nothing where all is well."""
    reasons = []
    if brokers.controller is None:
        reasons.append(
            wrong(
                "no-controller",
                "there is no active controller, or it does not answer: no leader is elected, no "
                "ISR changes, no topic is made",
                "a majority of the metadata quorum's voters has to be there: start controllers; "
                "their logs say whom they miss",
            )
        )
    for broker, error in sorted(brokers.silent.items()):
        reasons.append(
            wrong(
                "broker-silent",
                f"broker {broker} is said to serve and does not answer: {error}",
                f"look whether broker {broker} hangs or is paused, and whether its "
                f"advertised.listeners can be reached from here",
            )
        )
    if brokers.fenced:
        names = ", ".join(map(str, sorted(brokers.fenced)))
        reasons.append(
            note(
                "brokers-fenced",
                f"broker {names} is registered and does not serve: stopped, dead, or not ready",
                "start it; if it is gone for good, move its replicas and unregister it",
            )
        )
    return reasons
