"""ShareFetch at the limit of sessions: the late refusal ends with the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import ErrorCode
from unit.server.share.consumption import TOPIC, Member, share_broker

if TYPE_CHECKING:
    from unit.server.simulated_broker import SimulatedBroker

FOREVER_MS = (1 << 31) - 1
# The longest time for which a request is refused late.
WAIT_MS_MAX = 10_000
REQUESTS = 50


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> SimulatedBroker:
    """A broker with one session at most, which a member has."""
    broker = share_broker(monkeypatch, group_share_max_share_sessions="1", group_share_max_size="1")
    broker.produce(TOPIC, b"one")
    assert Member(broker, "a").fetch() == [(0, 0, 1)]
    return broker


def timers(broker: SimulatedBroker) -> int:
    return broker.node.shared.wheel.waiting_count


def test_no_timer_is_left_of_a_closed_connection(broker: SimulatedBroker) -> None:
    before = timers(broker)
    refused = [Member(broker, f"refused-{number}") for number in range(REQUESTS)]
    for member in refused:
        request = member.fetch_request(max_wait_ms=FOREVER_MS, share_session_epoch=0)
        member.client.send(request, 2)
    broker.world.run_for(100)
    assert timers(broker) >= before + REQUESTS
    for member in refused:
        member.client.channel.close()
    broker.world.run_for(100)
    assert timers(broker) <= before


@pytest.mark.parametrize(
    ("wait_ms", "waited_ms"), [(FOREVER_MS, WAIT_MS_MAX), (700, 700), (0, 0), (-FOREVER_MS, 0)]
)
def test_the_wait_is_the_members_up_to_a_limit(
    broker: SimulatedBroker, wait_ms: int, waited_ms: int
) -> None:
    refused = Member(broker, "b")
    request = refused.fetch_request(max_wait_ms=wait_ms)
    outcome = refused.client.send(request, 2)
    start_ms = broker.world.scheduler.now_ms
    assert broker.world.run_until(lambda: bool(outcome))
    ((response, error),) = outcome
    assert error is None
    assert response.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert waited_ms <= broker.world.scheduler.now_ms - start_ms < waited_ms + 100
