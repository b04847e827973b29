"""Runs plans of the client's admin calls on the broker's event loop, by callbacks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.admin.sender import Pause
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.admin.sender import Plan
    from barnabas.client.retries import OnDone
    from barnabas.runtime.clock import Timer

T = TypeVar("T")
_log = logging.getLogger(__name__)


def start_plan(plan: Plan[T], timer: Timer, on_done: OnDone[T]) -> None:
    """Run a plan. `on_done` gets its result or error, perhaps before this returns."""
    _Run(plan, timer, on_done).advance(None)


class _Run:
    __slots__ = ("_on_done", "_plan", "_timer")

    def __init__(self, plan: Plan[Any], timer: Timer, on_done: OnDone[Any]) -> None:
        self._plan = plan
        self._timer = timer
        self._on_done = on_done

    def advance(self, outcome: object) -> None:
        """Give the plan the outcome of its last step, and perform the next one."""
        try:
            step = self._plan.send(outcome)
        except StopIteration as end:
            self._on_done(end.value, None)
        except ClientError as error:
            self._on_done(None, error)
        except Exception as error:  # noqa: BLE001 - the plan ends, and the round is repeated
            self._on_done(None, _unexpected(error))
        else:
            if isinstance(step, Pause):
                self._timer.call_later(step.delay_ms, lambda: self.advance(None))
            else:
                self._perform(step)

    def _perform(self, step: Mapping[Any, Callable[[OnDone[Any]], None]]) -> None:
        outcomes: dict[Any, object] = {}

        def receiver(key: object) -> OnDone[Any]:
            def on_done(result: object, error: ClientError | None) -> None:
                if key in outcomes:
                    return
                outcomes[key] = result if error is None else error
                if len(outcomes) == len(step):
                    self.advance({each: outcomes[each] for each in step})

            return on_done

        if not step:
            self.advance({})
        for key, start in step.items():
            on_done = receiver(key)
            try:
                start(on_done)
            except Exception as error:  # noqa: BLE001 - the plan waits for each call
                on_done(None, _unexpected(error))


def _unexpected(error: Exception) -> ClientError:
    _log.error("A call of a link failed unexpectedly", exc_info=error)
    return ClientError(f"unexpected error: {error!r}")
