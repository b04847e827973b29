"""A reason: a statement and its remedy."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Reason", "duration", "is_healthy", "note", "ok", "wrong"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, in words."""

    # The kind of reason, for programs.
    kind: str
    # "ok": as expected; "note": temporary, or worth knowing; "wrong": does not resolve itself.
    verdict: str
    what: str
    # What to do; empty if nothing is necessary.
    remedy: str = ""


def ok(kind: str, what: str) -> Reason:
    """Return a reason for an expected state."""
    return Reason(kind, "ok", what)


def note(kind: str, what: str, remedy: str = "") -> Reason:
    """Return a reason for a temporary state, or for a fact worth knowing."""
    return Reason(kind, "note", what, remedy)


def wrong(kind: str, what: str, remedy: str) -> Reason:
    """Return a reason that needs an action by the operator."""
    return Reason(kind, "wrong", what, remedy)


def is_healthy(reasons: list[Reason]) -> bool:
    """Return whether no reason has the verdict "wrong"."""
    return all(reason.verdict != "wrong" for reason in reasons)


def duration(elapsed_ms: float) -> str:
    """Return a duration in words: "4 s", "12 min", "3 h", "2 days"."""
    seconds = max(0.0, elapsed_ms) / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, length, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < until:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"
