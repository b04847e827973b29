"""The findings of a check of files."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Finding", "Findings"]


class Finding(NamedTuple):
    """A problem, or a note about something worth knowing."""

    path: str
    what: str
    # What to do about it.
    remedy: str
    is_problem: bool


class Findings:
    """Findings in the order in which they were made."""

    def __init__(self) -> None:
        self.all: list[Finding] = []

    def problem(self, path: str, what: str, remedy: str) -> None:
        """Add a problem."""
        self.all.append(Finding(path, what, remedy, True))

    def note(self, path: str, what: str, remedy: str = "") -> None:
        """Add a note about something that is not wrong."""
        self.all.append(Finding(path, what, remedy, False))

    @property
    def problems(self) -> list[Finding]:
        """The findings that are problems."""
        return [finding for finding in self.all if finding.is_problem]
