"""One round of a poll: the order of its steps, wakes, and when the next round is due."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

from barnabas.client.group.group_offsets import CommittedOffset
from unit.client.consumer.assignment.reading import TP, Reading
from unit.client.consumer.silent_core import Silent, core_over


def reading_with_an_ended_commit(callback: Any) -> Reading:
    """A consumer whose next round calls `callback` for an asynchronous commit."""
    reading = Reading(**{"group.id": "g", "enable.auto.commit": False})
    reading.core.positions.seek(TP, 0)
    ended: list[Any] = []
    reading.core.offsets.commit = lambda *given: ended.append(given[-1])  # type: ignore[method-assign]
    reading.core.commit_async({TP: CommittedOffset(1)}, callback)
    ended[0](True, None)
    return reading


def test_a_wake_during_a_round_survives_the_round() -> None:
    reading = reading_with_an_ended_commit(lambda *_: reading.core.wake())
    reading.core.round()
    assert reading.core.is_awake
    reading.core.round()
    assert not reading.core.is_awake


def test_commit_callbacks_run_before_the_steps_of_the_membership() -> None:
    order: list[str] = []
    reading = reading_with_an_ended_commit(lambda *_: order.append("commit callback"))
    membership: Any = SimpleNamespace(poll=lambda: order.append("membership"))
    reading.core.membership = membership
    reading.core.round()
    assert order == ["commit callback", "membership"]


def test_a_waiting_poll_ends_when_the_membership_needs_the_next_round() -> None:
    core = core_over(Silent(**{"enable.auto.commit": False}))
    assert core.next_deadline_ms() == inf
    core.subscribe(["t"], None)
    assert core.membership is not None
    assert core.next_deadline_ms() == core.membership.next_deadline_ms() < inf
