"""A limit on log lines that repeat: clients without credentials cause them, or endless retries."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger

    from barnabas.runtime.clock import Clock

# Lines of one reason in a period, and different reasons.
LINES_MAX = 20
REASONS_MAX = 20
PERIOD_MS = 10_000.0


class LineLimit:
    """Allows some lines of each reason per period, and counts the others."""

    def __init__(self, clock: Clock, log: Logger, what: str, lines_max: int = LINES_MAX) -> None:
        """Create a limit.

        Args:
            clock: measures the periods.
            log: gets the number of omitted lines, at the first line after a period.
            what: the subject of the lines, for the line with that number.
            lines_max: lines of one reason in a period.
        """
        self._lines_max = lines_max
        self._clock = clock
        self._log = log
        self._what = what
        # Lines of the current period by reason, at most REASONS_MAX; its end; the omitted lines.
        self._lines: dict[str, int] = {}
        self._period_end_ms = 0.0
        self._unreported = 0

    def allows(self, reason: str) -> bool:
        """Return whether a line of this reason may be logged now, and count it."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._period_end_ms:
            self._period_end_ms = now_ms + PERIOD_MS
            self._lines.clear()
            if self._unreported:
                self._log.warning("%s not logged: count=%d", self._what, self._unreported)
                self._unreported = 0
        count = self._lines.get(reason, 0)
        if count >= self._lines_max or (not count and len(self._lines) >= REASONS_MAX):
            self._unreported += 1
            return False
        self._lines[reason] = count + 1
        return True
