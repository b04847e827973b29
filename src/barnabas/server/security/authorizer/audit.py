"""Log of denied operations.

A client that repeats denied requests must not fill the disk. The rate of lines is therefore
limited, and the number of omitted lines is logged later.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.metadata.acl_decision import Action
    from barnabas.runtime.clock import Clock

_log = logging.getLogger("barnabas.authorizer")

# Maximum number of lines in a burst.
BURST_LINES = 100
# Maximum average number of lines per second.
LINES_PER_SECOND = 5.0
# Maximum length of names that clients choose.
_NAME_CHARS_MAX = 249


class AuditLog:
    """Logs denied operations at a limited rate."""

    __slots__ = ("_clock", "_filled_ms", "_left_out", "_lines")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Lines that may be logged now. Grows with time up to BURST_LINES.
        self._lines = float(BURST_LINES)
        # When `_lines` was computed, in ms of the monotonic clock.
        self._filled_ms = clock.monotonic_ms()
        # Number of denials since the last line that were not logged.
        self._left_out = 0

    def denied(self, action: Action, operation: str, resource: str, api: str) -> None:
        """Log a denied operation.

        Args:
            action: the principal, host, operation and resource.
            operation: name of the operation.
            resource: name of the resource type.
            api: name of the API.
        """
        now_ms = self._clock.monotonic_ms()
        earned = (now_ms - self._filled_ms) * LINES_PER_SECOND / 1000.0
        self._lines = min(float(BURST_LINES), self._lines + earned)
        self._filled_ms = now_ms
        if self._lines < 1.0:
            self._left_out += 1
            return
        self._lines -= 1.0
        if self._left_out:
            _log.info("authorizer omitted lines: count=%d", self._left_out)
            self._left_out = 0
        _log.info(
            "authorizer denied principal=%s operation=%s resource=%s:%s host=%s api=%s",
            _text(action.principal),
            operation,
            resource,
            _text(action.name),
            _text(action.host),
            api,
        )


def _text(name: str) -> str:
    """Return a name that a client has chosen, without line breaks and of a limited length."""
    if len(name) > _NAME_CHARS_MAX:
        name = name[:_NAME_CHARS_MAX] + "..."
    return name if name.isprintable() and " " not in name else repr(name)
