"""What a check of files has found."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Finding", "Findings"]


class Finding(NamedTuple):
    """One thing that is wrong, or, as a note, worth knowing."""

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
        """Something is wrong."""
        self.all.append(Finding(path, what, remedy, True))

    def note(self, path: str, what: str, remedy: str = "") -> None:
        """Something is as it may be, and worth knowing."""
        self.all.append(Finding(path, what, remedy, False))

    @property
    def problems(self) -> list[Finding]:
        """Those that are wrong."""
        return [finding for finding in self.all if finding.is_problem]
