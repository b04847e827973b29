"""A reason: what is the case, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Reason", "duration", "is_well", "note", "ok", "wrong"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, in words."""

    # Names the class of the reason, for programs.
    kind: str
    # "ok": as it should be; "note": it passes by itself, or is worth knowing; "wrong": it stays.
    verdict: str
    what: str
    # What to do; empty where there is nothing to do.
    remedy: str = ""


def ok(kind: str, what: str) -> Reason:
    """As it should be."""
    return Reason(kind, "ok", what)


def note(kind: str, what: str, remedy: str = "") -> Reason:
    """Worth knowing, or passing."""
    return Reason(kind, "note", what, remedy)


def wrong(kind: str, what: str, remedy: str) -> Reason:
    """Somebody has to do something."""
    return Reason(kind, "wrong", what, remedy)


def is_well(reasons: list[Reason]) -> bool:
    """Whether none of them is wrong."""
    return all(reason.verdict != "wrong" for reason in reasons)


def duration(elapsed_ms: float) -> str:
    """A length of time in words: "4 s", "12 min", "3 h", "2 days"."""
    seconds = max(0.0, elapsed_ms) / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, length, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < until:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"
