"""Findings of an examination, and their remedies."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Diagnosis", "Finding"]

_UNEXAMINED = "not examined: "
Verdict = Literal["ok", "note", "wrong"]


class Finding(NamedTuple):
    """The result of one check."""

    verdict: Verdict
    what: str
    # What to do; empty if there is nothing to do.
    remedy: str = ""

    @property
    def is_unexamined(self) -> bool:
        """Whether it says what was not examined."""
        return self.what.startswith(_UNEXAMINED)


class Diagnosis:
    """Findings in the order of the checks; a finding that explains the others comes first."""

    def __init__(self) -> None:
        # The finding that explains the others, and the other findings.
        self._first: list[Finding] = []
        self._rest: list[Finding] = []
        # Whether nothing was left out that could have been a problem.
        self.is_complete = True

    @property
    def findings(self) -> list[Finding]:
        """All findings; the one that explains the others comes first."""
        return [*self._first, *self._rest]

    def add(self, other: Diagnosis) -> None:
        """Take over the findings of another diagnosis."""
        self._first += other._first
        self._rest += other._rest
        self.is_complete = self.is_complete and other.is_complete

    def ok(self, what: str) -> None:
        """Add the finding that a check passed."""
        self._rest.append(Finding("ok", what))

    def note(self, what: str, remedy: str = "") -> None:
        """Add a finding that is no problem, but useful to know."""
        self._rest.append(Finding("note", what, remedy))

    def unexamined(self, what: str, remedy: str = "") -> None:
        """Add a note about what could not be examined: the examination is incomplete."""
        self.is_complete = False
        self.note(f"{_UNEXAMINED}{what}", remedy)

    def wrong(self, what: str, remedy: str) -> None:
        """Add a problem, or a cause of a future problem."""
        self._rest.append(Finding("wrong", what, remedy))

    def wrong_first(self, what: str, remedy: str) -> None:
        """Add a problem that causes the others; it is printed first.

        A second call replaces the first one, with a more exact description.
        """
        self._first = [Finding("wrong", what, remedy)]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong."""
        return all(finding.verdict != "wrong" for finding in self.findings)
