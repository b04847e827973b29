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
    """Findings in the order in which they were made, but for those that come first."""

    def __init__(self) -> None:
        # What outweighs everything else, and the rest.
        self._first: list[Finding] = []
        self._rest: list[Finding] = []

    @property
    def findings(self) -> list[Finding]:
        """All findings, what outweighs the others first."""
        return [*self._first, *self._rest]

    def add(self, other: Diagnosis) -> None:
        """Take over the findings of another diagnosis."""
        self._first += other._first
        self._rest += other._rest

    def ok(self, what: str) -> None:
        """It is as it should be."""
        self._rest.append(Finding("ok", what))

    def note(self, what: str, remedy: str = "") -> None:
        """It works, and is worth knowing."""
        self._rest.append(Finding("note", what, remedy))

    def wrong(self, what: str, remedy: str) -> None:
        """It does not work, or is about to fail."""
        self._rest.append(Finding("wrong", what, remedy))

    def wrong_first(self, what: str, remedy: str) -> None:
        """The same, of what causes or outweighs everything else: it is told first.

        A second call replaces what the first one said, by something more exact.
        """
        self._first = [Finding("wrong", what, remedy)]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong."""
        return all(finding.verdict != "wrong" for finding in self.findings)
