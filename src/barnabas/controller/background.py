"""The active controller's own work: fencing of brokers, leader rebalancing, and timers.

Its tasks run periodically (Kafka's PeriodicTaskControlManager).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.records.metadata_log import NoOpRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.controller.apis import Controls
    from barnabas.controller.appended_state import AppendedState
    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.result import ControllerResult, ControllerView
    from barnabas.runtime.clock import Cancellable, Timer


# Delay between the parts of a task, ms, in which the event loop serves other work.
_NEXT_PART_MS = 10.0


class PeriodicTask(msgspec.Struct, frozen=True):
    """A task that runs every `period_ms`."""

    period_ms: float
    # Does a part of the work; returns whether more is left.
    run: Callable[[], bool]


class PeriodicTasks:
    """Runs the tasks while this controller is active."""

    __slots__ = ("_armed", "_is_running", "_tasks", "_timer")

    def __init__(self, timer: Timer, tasks: list[PeriodicTask]) -> None:
        self._timer = timer
        self._tasks = tasks
        self._armed: dict[int, Cancellable] = {}
        self._is_running = False

    def start(self) -> None:
        """Start all tasks. Each runs for the first time after its period."""
        self._is_running = True
        for number, task in enumerate(self._tasks):
            self._arm(number, task.period_ms)

    def stop(self) -> None:
        """Stop all tasks until the next `start`."""
        self._is_running = False
        for armed in self._armed.values():
            armed.cancel()
        self._armed.clear()

    def _arm(self, number: int, delay_ms: float) -> None:
        self._armed[number] = self._timer.call_later(delay_ms, lambda: self._run(number))

    def _run(self, number: int) -> None:
        task = self._tasks[number]
        del self._armed[number]
        more = False
        try:
            more = task.run()
        finally:
            # A task that raises runs again after its period. The task may have ended this
            # controller's leadership, and thereby called `stop`.
            if self._is_running and number not in self._armed:
                self._arm(number, _NEXT_PART_MS if more else task.period_ms)


_log = logging.getLogger(__name__)

# A timer that is later than this means that the process was suspended or its event loop blocked.
_STALL_MS = 500.0
# After this many records in one turn, the event loop serves other work first.
_MANY_RECORDS = 100


class Background:
    """The background work, which runs from `start` to `stop` while this controller is active."""

    def __init__(
        self,
        config: ControllerConfig,
        state: AppendedState,
        controls: Controls,
        timer: Timer,
    ) -> None:
        self._config = config
        self._state = state
        self._brokers = controls.brokers
        self._sessions = controls.sessions
        self._elections = controls.leader_elections
        self._tokens = controls.tokens
        self._timer = timer
        self._session_timer: Cancellable | None = None
        # When that timer is due, monotonic ms.
        self._session_deadline = 0.0
        # Whether a call of `_move_leaderships` is scheduled.
        self._is_move_scheduled = False
        # Log end offset at the last run of the idle task; -1 before the first.
        self._idle_since = -1
        self._tasks = PeriodicTasks(timer, self._make_tasks())

    def _make_tasks(self) -> list[PeriodicTask]:
        config, elections = self._config, self._elections
        tasks = [
            PeriodicTask(
                config.unclean_leader_election_interval_ms,
                lambda: self._run(elections.elect_unclean),
            ),
            PeriodicTask(
                config.token_expiry_check_interval_ms,
                lambda: self._run(self._tokens.remove_expired),
            ),
        ]
        if config.auto_leader_rebalance_enable:
            tasks.append(
                PeriodicTask(
                    config.leader_imbalance_check_interval_ms,
                    lambda: self._run(elections.elect_preferred),
                )
            )
        if config.metadata_max_idle_interval_ms:
            tasks.append(PeriodicTask(config.metadata_max_idle_interval_ms, self._note_idleness))
        return tasks

    def start(self) -> None:
        """Start all tasks when this controller becomes active."""
        self._tasks.start()
        self.on_sessions_changed()

    def stop(self) -> None:
        """Stop all tasks when this controller is no longer active."""
        self._tasks.stop()
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None

    # -- sessions ----------------------------------------------------------------------------------

    def on_sessions_changed(self) -> None:
        """Set the timer of the sessions, and move leaderships of brokers that shut down."""
        self._watch_sessions()
        self._continue_shutdowns()

    def _watch_sessions(self) -> None:
        """Set a timer for the next end of a broker session, unless one is set."""
        if self._session_timer is not None or self._state.image is None:
            return
        deadline = self._sessions.next_deadline()
        if deadline is not None:
            self._session_deadline = deadline
            delay_ms = max(0.0, deadline - self._state.now_ms)
            self._session_timer = self._timer.call_later(delay_ms, self._check_sessions)

    def _check_sessions(self) -> None:
        self._session_timer = None
        stalled_ms = self._state.now_ms - self._session_deadline
        if stalled_ms > _STALL_MS:
            # Heartbeats of this time may still be in the socket buffers, and are read before the
            # next check.
            _log.warning("Controller stalled, no broker is fenced: stalled_ms=%d", stalled_ms)
            self._sessions.renew(self._state.now_ms)
        self._brokers.note_silent(self._state.now_ms)
        self._fence()
        self._watch_sessions()

    def broker_suspected(self, broker_id: int, broker_epoch: int) -> None:
        """Note that a broker's connection is lost; the broker may connect again."""
        view = self._state.view()
        if view is not None:
            self._brokers.note_suspected(view.image, broker_id, broker_epoch)

    def broker_lost(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker whose connection is lost and was not replaced."""
        view = self._state.view()
        if view is not None:
            self._brokers.note_lost(view.image, broker_id, broker_epoch)
            self._fence()

    def _fence(self) -> None:
        """Fence dead brokers; those with many partitions take several turns of the event loop."""
        while self._brokers.has_dead and (view := self._state.view()) is not None:
            records = self._brokers.fence_some(view)
            self._state.append(records)
            if len(records) > _MANY_RECORDS:
                self._timer.call_soon(self._fence)
                return

    def _continue_shutdowns(self) -> None:
        """Continue to move leaderships away from brokers that shut down, in a later turn."""
        if self._brokers.has_leaving_brokers and not self._is_move_scheduled:
            self._is_move_scheduled = True
            self._timer.call_soon(self._move_leaderships)

    def _move_leaderships(self) -> None:
        self._is_move_scheduled = False
        view = self._state.view()
        if view is not None and self._brokers.has_leaving_brokers:
            self._state.append(self._brokers.move_some(view))
            self._continue_shutdowns()

    # -- timers ------------------------------------------------------------------------------------

    def _run(self, work: Callable[[ControllerView], ControllerResult[bool]]) -> bool:
        view = self._state.view()
        if view is None:
            return False
        result = work(view)
        self._state.append(result.records)
        return result.response

    def _note_idleness(self) -> bool:
        """Append a NoOpRecord if the log was idle, to show its readers that the leader is alive.

        A single node has no other readers of the log, and saves the disk write.
        """
        view = self._state.view()
        if view is None:
            return False
        end_offset, own_id = view.next_offset, self._config.node_id
        others = (*view.image.brokers, *view.image.controllers)
        if end_offset == self._idle_since and any(each != own_id for each in others):
            self._state.append([(NoOpRecord(), 0)])
            end_offset += 1
        self._idle_since = end_offset
        return False
