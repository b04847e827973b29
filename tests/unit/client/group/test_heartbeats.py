"""Heartbeats of a member: responses that arrive in another generation."""

from __future__ import annotations

from typing import Any

from barnabas.client.errors import ClientError, broker_error
from barnabas.client.group.group_calls import Heartbeat, HeartbeatCallbacks
from barnabas.client.group.membership import GroupGeneration
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import HeartbeatResponse
from unit.client.group.scripted_group import ScriptedGroup

INTERVAL_MS = 100


class Calls:
    """Keeps the heartbeats, so that the test can respond in any order."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def call(self, _api_key: Any, _build: Any, on_done: Any, _timeout_ms: float) -> None:
        self.asked.append(on_done)


class Beating:
    """Heartbeats of generation 1, one of them in flight."""

    def __init__(self) -> None:
        self.group: Any = ScriptedGroup(heartbeat_interval_ms=INTERVAL_MS)
        self.calls: Any = Calls()
        self.generation = 1
        self.heard: list[tuple[ErrorCode | None, int]] = []
        owner = HeartbeatCallbacks(
            lambda: GroupGeneration("g", self.generation, "m"), self._on_answer
        )
        self.heartbeat = Heartbeat(self.group, self.calls, owner)
        self.heartbeat.start()
        self.run(INTERVAL_MS + 1)
        assert len(self.calls.asked) == 1

    def _on_answer(self, error: ClientError | None, sent_by: GroupGeneration) -> None:
        self.heard.append((error and error.error_code, sent_by.generation_id))

    def run(self, duration_ms: float) -> None:
        self.group.world.run_for(duration_ms)

    def begin_anew(self) -> None:
        self.generation += 1
        self.heartbeat.start()


def test_a_heartbeat_response_of_an_earlier_generation_is_ignored() -> None:
    beating = Beating()
    (late,) = beating.calls.asked
    beating.begin_anew()
    late(None, broker_error(ErrorCode.UNKNOWN_MEMBER_ID, "HEARTBEAT"))
    assert beating.heard == []


def test_a_response_of_an_earlier_generation_does_not_allow_a_second_heartbeat() -> None:
    beating = Beating()
    (late,) = beating.calls.asked
    beating.begin_anew()
    beating.run(INTERVAL_MS + 1)
    assert len(beating.calls.asked) == 2
    late(HeartbeatResponse(error_code=0), None)
    beating.run(10 * INTERVAL_MS)
    assert len(beating.calls.asked) == 2
    beating.calls.asked[1](HeartbeatResponse(error_code=0), None)
    beating.run(INTERVAL_MS + 1)
    assert len(beating.calls.asked) == 3
    assert beating.heard == [(None, 2)]


def test_a_heartbeat_response_after_stop_is_ignored() -> None:
    beating = Beating()
    (late,) = beating.calls.asked
    beating.heartbeat.stop()
    late(HeartbeatResponse(error_code=0), None)
    beating.run(10 * INTERVAL_MS)
    assert beating.heard == []
    assert len(beating.calls.asked) == 1
