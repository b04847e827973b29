"""Reasons about damaged files, from the metrics listeners of brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.why.reasons.reason import Reason, note, wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["damage_reasons"]

# Kinds of damage that lose records or make them unreadable.
_LOSING_KINDS = frozenset({"batch", "gap", "identity", "log"})


def damage_reasons(damage: Mapping[str, Mapping[str, int]]) -> list[Reason]:
    """Return a reason for each broker that has found damage since its start."""
    return [_reason(address, kinds) for address, kinds in damage.items()]


def _reason(address: str, kinds: Mapping[str, int]) -> Reason:
    places = ", ".join(f"{count} of kind {kind}" for kind, count in kinds.items())
    what = f"the broker at {address} has found damaged files since its start: {places}"
    lines = "its log has a line `Damage found` for each of them"
    if _LOSING_KINDS & set(kinds):
        remedy = (
            f"{lines}; `{Advice.VERIFY_LOG.text(directory='DIRECTORY')}` finds the current "
            "damage, and with the broker stopped, "
            f"`{Advice.REPAIR_LOG.text(directory='DIRECTORY')}` lists the possible repairs"
        )
        return wrong("damaged-files", what, remedy)
    return note("damaged-files", what, f"{lines}; the broker rebuilt them, no record is lost")
