"""Reasons that concern the cluster as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.quorum_state import NO_LEADER
from barnabas.cli.why.reasons.reason import Reason, note, wrong

if TYPE_CHECKING:
    from barnabas.cli.why.facts.facts import BrokerFacts

__all__ = ["cluster_reasons", "no_controller"]


def no_controller() -> Reason:
    """Return the reason for a metadata quorum without a leader."""
    return wrong(
        "no-controller",
        f"{NO_LEADER}, and no ISR changes",
        "a majority of the metadata quorum's voters must run: start the controllers "
        f"that are down; `{Advice.DOCTOR.text()}` lists them",
    )


def cluster_reasons(brokers: BrokerFacts) -> list[Reason]:
    """Return the problems of the cluster; empty if there are none."""
    reasons = []
    if brokers.controller is None:
        reasons.append(no_controller())
    for broker, error in sorted(brokers.silent.items()):
        reasons.append(
            wrong(
                "broker-silent",
                f"broker {broker} is registered as active but does not answer: {error}",
                f"check whether broker {broker} hangs or is paused, and whether its "
                "advertised.listeners are reachable from here",
            )
        )
    if brokers.fenced:
        names = ", ".join(map(str, sorted(brokers.fenced)))
        reasons.append(
            note(
                "brokers-fenced",
                f"broker {names} is registered but fenced: stopped, dead, or not ready",
                "start it; if it will not return, move its replicas and unregister it",
            )
        )
    return reasons
