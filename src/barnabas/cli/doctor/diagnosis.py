"""What was looked at, what was found, and what to do about it."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Diagnosis", "Finding"]

Verdict = Literal["ok", "note", "wrong"]


class Finding(NamedTuple):
    """One thing that was looked at."""

    verdict: Verdict
    what: str
    # What to do; empty if nothing.
    remedy: str = ""


class Diagnosis:
    """Findings in the order in which they were made."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def ok(self, what: str) -> None:
        """It is as it should be."""
        self.findings.append(Finding("ok", what))

    def note(self, what: str, remedy: str = "") -> None:
        """It works, and is worth knowing."""
        self.findings.append(Finding("note", what, remedy))

    def wrong(self, what: str, remedy: str) -> None:
        """It does not work, or is about to fail."""
        self.findings.append(Finding("wrong", what, remedy))

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong."""
        return all(finding.verdict != "wrong" for finding in self.findings)
