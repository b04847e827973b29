"""Counts interpreter instructions: a measure of work that a busy machine does not change."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class Instructions:
    """Counts the interpreter instructions of each piece of work. They take about 12 ns each."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def count(self, run: Callable[[], object]) -> None:
        """Run a piece of work, and count its instructions."""
        self.counts.append(0)
        sys.settrace(self._trace)
        try:
            run()
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode":
            self.counts[-1] += 1
        return self._trace
