"""The verdict of a checker about what clients saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

# Number of findings of each kind that are reported in full.
FINDINGS_MAX = 10


@dataclass
class Verdict:
    """Number of violations of each kind, and the first ones in full."""

    # The kinds of faults that the checker knows.
    kinds: Collection[str]
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not self.counts

    def add(self, kind: str, text: str) -> None:
        """Add one finding."""
        assert kind in self.kinds, kind
        self.counts[kind] += 1
        if self.counts[kind] <= FINDINGS_MAX:
            self.findings.append(f"{kind}: {text}")

    def __str__(self) -> str:
        if self.is_clean:
            return "no faults"
        counts = ", ".join(f"{kind} {count}" for kind, count in self.counts.items())
        return "\n".join([counts, *self.findings])
