"""Runs the steps of a membership inside `poll`, one after another.

A step calls the host, which may need several polls to finish it: it commits, or it runs a callback
of the user. The next step starts only after the current step has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.group.membership import OnHostDone

__all__ = ["PollSteps"]


class PollSteps:
    """The steps of one membership.

    Args:
        wake: Ends the wait of the host's poll.
    """

    __slots__ = ("_continuation", "_depth", "_wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        # Called at the end of the current step; set by `start`, removed at the end of the step and
        # by `stop`. None if no step is in progress. Invariant: at most one step is in progress.
        self._continuation: OnHostDone | None = None
        # Number of `run` calls that have not returned; above 0 the host need not be woken.
        self._depth = 0

    @property
    def is_in_progress(self) -> bool:
        """Whether a step has started and not ended."""
        return self._continuation is not None

    def run(self, advance: Callable[[], bool]) -> None:
        """Call `advance` until it returns False or has started a step that is not done at once."""
        self._depth += 1
        try:
            while self._continuation is None and advance():
                pass
        finally:
            self._depth -= 1

    def start(self, step: Callable[[OnHostDone], None], continuation: OnHostDone) -> None:
        """Start a step.

        Args:
            step: Starts the step; calls its argument at the end of the step, possibly at once.
            continuation: Called then with the exception of the step or None.
        """
        assert self._continuation is None, "a step of the membership is in progress already"
        self._continuation = continuation

        def on_done(error: BaseException | None) -> None:
            # After `stop` the result of the step is ignored.
            if self._continuation is continuation:
                self._continuation = None
                continuation(error)
                self.wake()

        step(on_done)

    def stop(self) -> None:
        """Ignore the result of the current step."""
        self._continuation = None

    def wake(self) -> None:
        """End the wait of the host's poll; does nothing inside `run`."""
        if not self._depth:
            self._wake()
